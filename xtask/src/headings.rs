//! Checks links to headings, and the book's list of pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::pages::{prose, prose_with_code};
use crate::sources::tracked;
use crate::{read, root};

const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Returns links to missing headings.
pub fn broken(pages: &[String]) -> Vec<String> {
    let of_page = |page: &String| {
        let text = read(page);
        let links = prose(&text).into_iter().flat_map(|line| links(&line));
        let is_broken = |(target, heading): &(String, String)| {
            let path = match target.is_empty() {
                true => PathBuf::from(page),
                false => Path::new(page)
                    .parent()
                    .unwrap_or(Path::new(""))
                    .join(target),
            };
            // `pages::broken_links` reports missing files.
            let page = std::fs::read_to_string(root().join(path));
            page.is_ok_and(|page| !ids(&page).contains(heading))
        };
        let broken = links.filter(is_broken);
        broken
            .map(|(target, heading)| format!("{page}: {target}#{heading}"))
            .collect::<Vec<_>>()
    };
    pages.iter().flat_map(of_page).collect()
}

/// Returns pages that the book's list lacks, which mdBook would not build.
pub fn unlisted() -> Vec<String> {
    let list = read(SUMMARY);
    let pages = tracked(&["docs/src/*.md"]);
    let pages = pages.iter().map(|path| path.display().to_string());
    let is_listed = |page: &String| {
        let name = page.strip_prefix("docs/src/").unwrap_or(page);
        list.contains(&format!("]({name})"))
    };
    pages
        .filter(|page| page != SUMMARY && !is_listed(page))
        .collect()
}

/// Returns each link's page and heading id. The page is empty for a link within its own page.
fn links(line: &str) -> Vec<(String, String)> {
    let targets = line.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', ' ']).next());
    let links = targets.filter_map(|target| target.split_once('#'));
    let inside = links.filter(|(page, _)| !page.contains("://"));
    inside
        .map(|(page, id)| (page.to_owned(), id.to_owned()))
        .collect()
}

/// Returns ids as mdBook and GitHub make them.
fn ids(page: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for line in prose_with_code(page) {
        let text = line.trim_start_matches('#');
        let Some(text) = text.strip_prefix(' ').filter(|_| text.len() < line.len()) else {
            continue;
        };
        let id = id(text);
        // The ids of repeated headings end with a number.
        let numbered = (1..).map(|number| format!("{id}-{number}"));
        let mut names = std::iter::once(id.clone()).chain(numbered);
        ids.extend(names.find(|name| !ids.contains(name)));
    }
    ids
}

fn id(heading: &str) -> String {
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => letter.to_lowercase().next(),
        _ => None,
    };
    heading.trim().chars().filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_ids_of_the_books_builder() {
        for (heading, expected) in [
            ("By cgroup", "by-cgroup"),
            (
                "When tiptoe is killed (`kill -9`)",
                "when-tiptoe-is-killed-kill--9",
            ),
            ("Is it safe?", "is-it-safe"),
            ("A_b, c", "a_b-c"),
        ] {
            assert_eq!(id(heading), expected);
        }
        let found = ids("# A b\ntext\n```sh\n# no heading\n```\n## A b\n#none\n");
        assert_eq!(
            found,
            BTreeSet::from(["a-b".to_owned(), "a-b-1".to_owned()])
        );
    }

    #[test]
    fn links_to_headings_are_found() {
        let found = links("[a](b.md#c), [d](#e) and [f](g.md) [h](https://i/j#k)");
        let expected = [("b.md", "c"), ("", "e")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_link_to_no_heading_is_found() {
        let all = broken(&["docs/src/faq.md".to_owned()]);
        assert_eq!(all, Vec::<String>::new());
        let page = read("docs/src/limits.md");
        assert!(!ids(&page).contains("no-such-heading") && ids(&page).contains("stat"));
    }
}
