#!/usr/bin/env bash
# Builds the book of docs/ in target/docs, and checks that the links of its pages lead to files.
# scripts/docs.sh may-skip: without mdbook the step is skipped.
. "$(dirname "$0")/common.sh"

book=target/docs

if ! have mdbook; then
    if [[ ${1:-} == may-skip ]]; then
        skip book "mdbook is not installed"
        exit
    fi
    echo 'error: no `mdbook`' >&2
    echo 'hint: cargo install --locked mdbook' >&2
    exit 2
fi

# Prints `PAGE: LINK` for each link inside the book that leads to no file. Sources alone do not show these, because a page
# may be included from elsewhere.
broken_links() {
    local page link folder
    for page in "$book"/*.html "$book"/*/*.html; do
        folder=$(dirname "$page")
        grep -oE '(href|src)="[^"#]+' "$page" | cut -d'"' -f2 | sort -u | while read -r link; do
            [[ $link == *:* || -e $folder/$link ]] || echo "${page#"$book"/}: $link"
        done
    done
}

mdbook build docs
broken=$(broken_links)
if [[ -n $broken ]]; then
    echo "error: links of the book lead nowhere: $broken" >&2
    exit 1
fi
echo "the book: $book/index.html"
