"""The scripts that make a shell ask for completions. Each asks ``symphony __complete WORD...`` for lines to offer.

What is asked is the program that was typed, ``./lab.py`` or ``~/lab/lab.py``, which need not be on the PATH; for a word
that is none, such as an alias, the one of that name. A line that begins with a colon is no word: it says that files or
folders may stand there too, which the shell knows better.
"""

from __future__ import annotations

import re
import shlex

from symphony.commandline.parsing.dispatch import COMPLETE_COMMAND

FILES, FOLDERS = ":files", ":folders"

_BASH = """\
# {prog}: completion for bash. Put this into ~/.bashrc:
#   eval "$({prog} completion bash)"
{function}() {{
    local program=${{COMP_WORDS[0]}} line=${{COMP_LINE:0:COMP_POINT}} typed=${{COMP_WORDS[COMP_CWORD]}}
    local words last known=
    # To bash what stands before a colon or an equals sign is a word by itself, of the program's path too.
    line=${{line#*"$program"}} && program+=${{line%%[[:space:]]*}} && line=${{line#"${{line%%[[:space:]]*}}"}}
    read -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    last=${{words[${{#words[@]}}-1]}}
    [[ $last != "$typed" ]] && known=${{last%"${{last##*[:=]}}"}} && typed=${{last#"$known"}}
    # As it was typed, without quotes and with the home folder; nothing that would run anything is looked into.
    [[ $program == *[\\$\\`\\;\\&\\|\\<\\>\\(\\)]* ]] || eval "program=$program" 2>/dev/null
    [[ $(type -t -- "$program") == @(file|function) ]] || program={prog}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        {files}|{folders})
            [[ $line == {files} ]] && line=-f || line=-d
            while IFS= read -r line; do
                COMPREPLY+=("$line"); compopt -o filenames 2>/dev/null
            done < <(compgen "$line" -- "$typed") ;;
        *)
            COMPREPLY+=("${{line#"$known"}}")
            [[ $line == *[:=] ]] && compopt -o nospace 2>/dev/null ;;
        esac
    done < <("$program" {ask} "${{words[@]}}" 2>/dev/null)
}}
complete -F {function} {prog}
"""

_ZSH = """\
# {prog}: completion for zsh. Put this into ~/.zshrc:
#   eval "$({prog} completion zsh)"
{function}() {{
    local program=${{(Q)words[1]}}
    local -a found open whole
    [[ $program == '~'* ]] && program=${{~program}}
    whence -- $program >/dev/null || program={prog}
    found=("${{(@f)$($program {ask} "${{(@Q)words[2,CURRENT-1]}}" "$PREFIX" 2>/dev/null)}}")
    open=(${{(M)${{found:#:*}}:#*[:=]}}) whole=(${{${{found:#:*}}:#*[:=]}})
    compadd -S '' -a open
    compadd -a whole
    [[ -n ${{found[(r){files}]}} ]] && _files
    [[ -n ${{found[(r){folders}]}} ]] && _files -/
    [[ ${{compstate[nmatches]}} -gt 0 ]]
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef {function} {prog}
"""

_FISH = """\
# {prog}: completion for fish. Put this into ~/.config/fish/config.fish:
#   {prog} completion fish | source
function {function}
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l program (string replace -r '^~(?=/)' -- $HOME (commandline -opc)[1])
    type -q -- $program; or set program {prog}
    for line in ($program {ask} $words 2>/dev/null)
        switch $line
            case '{files}'
                __fish_complete_path (commandline -ct)
            case '{folders}'
                __fish_complete_directories (commandline -ct) ''
            case '*'
                echo $line
        end
    end
end
complete -c {prog} -f -a '({function})'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
SHELLS = tuple(_SCRIPTS)


def completion_script(shell: str, prog: str) -> str:
    """What a shell has to read once; see `SHELLS`."""
    function = f"_{re.sub('[^a-z0-9]', '_', prog.lower())}"
    return _SCRIPTS[shell].format(
        prog=shlex.quote(prog),
        function=function,
        ask=COMPLETE_COMMAND,
        files=FILES,
        folders=FOLDERS,
    )
