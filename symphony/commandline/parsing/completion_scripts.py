"""Completion scripts for bash, zsh and fish.

A script runs ``symphony __complete WORD...``, and offers the printed lines as completions. The
script runs the program as it was typed, for example, ``./lab.py`` or ``~/lab/lab.py``, because the
program may not be on the PATH. If the typed word is not a program but, for example, an alias, the
script runs the program for which the script was generated.
"""

from __future__ import annotations

import re
import shlex

from symphony.commandline.parsing.arguments import COMPLETE_COMMAND

# These output lines are not completions. They request that the shell complete a path.
COMPLETE_FILES = ":files"
COMPLETE_DIRECTORIES = ":directories"

_BASH = """\
# Bash completion for {prog}. Add this line to ~/.bashrc:
#   eval "$({prog} completion bash)"
{function}() {{
    local program=${{COMP_WORDS[0]}} typed=${{COMP_WORDS[COMP_CWORD]}}
    local line=${{COMP_LINE:0:COMP_POINT}} words last known=
    # Bash splits words at colons and equals signs, also in the path of the program.
    line=${{line#*"$program"}}
    program+=${{line%%[[:space:]]*}}
    line=${{line#"${{line%%[[:space:]]*}}"}}
    read -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    last=${{words[${{#words[@]}}-1]}}
    if [[ $last != "$typed" ]]; then
        known=${{last%"${{last##*[:=]}}"}}
        typed=${{last#"$known"}}
    fi
    # Expand quotes and the home directory, unless the word could run another command.
    [[ $program == *[\\$\\`\\;\\&\\|\\<\\>\\(\\)]* ]] ||
        eval "program=$program" 2>/dev/null
    [[ $(type -t -- "$program") == @(file|function) ]] || program={prog}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        {files}|{directories})
            [[ $line == {files} ]] && line=-f || line=-d
            while IFS= read -r line; do
                COMPREPLY+=("$line"); compopt -o filenames 2>/dev/null
            done < <(compgen "$line" -- "$typed") ;;
        *)
            COMPREPLY+=("${{line#"$known"}}")
            [[ $line == *[:=] ]] && compopt -o nospace 2>/dev/null ;;
        esac
    done < <("$program" {complete} "${{words[@]}}" 2>/dev/null)
}}
complete -F {function} {prog}
"""

_ZSH = """\
# Zsh completion for {prog}. Add this line to ~/.zshrc:
#   eval "$({prog} completion zsh)"
{function}() {{
    local program=${{(Q)words[1]}}
    local -a found open whole
    [[ $program == '~'* ]] && program=${{~program}}
    whence -- $program >/dev/null || program={prog}
    found=("${{(@f)$($program {complete} "${{(@Q)words[2,CURRENT-1]}}" "$PREFIX" 2>/dev/null)}}")
    open=(${{(M)${{found:#:*}}:#*[:=]}}) whole=(${{${{found:#:*}}:#*[:=]}})
    compadd -S '' -a open
    compadd -a whole
    [[ -n ${{found[(r){files}]}} ]] && _files
    [[ -n ${{found[(r){directories}]}} ]] && _files -/
    [[ ${{compstate[nmatches]}} -gt 0 ]]
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef {function} {prog}
"""

_FISH = """\
# Fish completion for {prog}. Add this line to ~/.config/fish/config.fish:
#   {prog} completion fish | source
function {function}
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l program (string replace -r '^~(?=/)' -- $HOME (commandline -opc)[1])
    type -q -- $program; or set program {prog}
    for line in ($program {complete} $words 2>/dev/null)
        switch $line
            case '{files}'
                __fish_complete_path (commandline -ct)
            case '{directories}'
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
    """Return a script with which a shell completes command lines that run ``prog``.

    ``shell`` is one of `SHELLS`.
    """
    function = f"_{re.sub('[^a-z0-9]', '_', prog.lower())}"
    return _SCRIPTS[shell].format(
        prog=shlex.quote(prog),
        function=function,
        complete=COMPLETE_COMMAND,
        files=COMPLETE_FILES,
        directories=COMPLETE_DIRECTORIES,
    )
