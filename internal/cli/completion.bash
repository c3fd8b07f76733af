# What follows needs some functions of the package bash-completion; where that is not there, these do.
if ! declare -F _get_comp_words_by_ref >/dev/null; then
_get_comp_words_by_ref() # fills cur, prev, words and cword; joins what bash has split at = and :
{
    local rest=$COMP_LINE blank word i n=0
    words=()
    cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        blank=${rest%%[![:blank:]]*}
        rest=${rest#"$blank"}
        rest=${rest#"$word"}
        if ((i > 0)) && [[ -z $blank ]]; then
            words[n - 1]+=$word
        else
            words[n]=$word
            n=$((n + 1))
        fi
        if ((i == COMP_CWORD)); then
            cword=$((n - 1))
        fi
    done
    cur=${words[cword]}
    prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
}
__ltrim_colon_completions()
{
    local i=${#COMPREPLY[@]} before=${1%"${1##*:}"}
    if [[ $1 == *:* && $COMP_WORDBREAKS == *:* ]]; then
        while ((i-- > 0)); do
            COMPREPLY[i]=${COMPREPLY[i]#"$before"}
        done
    fi
}
_filedir()
{
    local IFS=$'\n'
    if [[ $1 == -d ]]; then
        COMPREPLY+=($(compgen -d -- "$cur"))
    else
        COMPREPLY+=($(compgen -f -- "$cur"))
    fi
}
fi

