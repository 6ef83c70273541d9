#!/bin/sh
# Run `pip install` in an environment and print its long steps only: sh scripts/pip_install.sh VENV ARGUMENT...
# After an error, everything that pip prints is shown. POSIX shell: a pipe does not return the status of pip, so a file
# records a failure.
venv=$1
shift
failed=$venv/.failed
all=
rm -f "$failed"
{ "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 || touch "$failed"; } |
  while IFS= read -r line; do
    case "$all$line" in
      yes* | ERROR:* | *" error: "*)
        printf '%s\n' "$line"
        all=yes
        ;;
      *"Downloading "*" ("[1-9][0-9]*" MB)" | *"Downloading "*" GB)")  # 10 MB or more
        line=${line#*Downloading }
        echo "    downloading ${line##*/}"
        ;;
      *"Building "*" for lowtide "*started)
        echo "    building lowtide"
        ;;
      "Installing collected packages: "*)
        set -- ${line#*: }
        echo "    installing $# packages"
        ;;
    esac
  done
test ! -e "$failed"
