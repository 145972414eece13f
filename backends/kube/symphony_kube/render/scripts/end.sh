# Exit with the exit code of the program, `code`, or with 143 if it is 0 and the script "stop" has said
# that this would not be a success. Kubernetes would not start the program again after 0.
end() {
  if [ "$code" = 0 ] && [ -f /dev/termination-log ]; then
    while read -r x; do
      case $x in *"; exit code 0 becomes 143"*) code=143 ;; esac
    done </dev/termination-log
  fi
  exit "$code"
}
