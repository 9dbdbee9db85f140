//! Puts output that `scripts/sessions.sh` recorded into the pages.

use std::path::Path;

use crate::{pages, read, root};

const CUT: &str = "[…]";

const MACHINE: [&str; 2] = ["Outputs are of ", "."];

/// Puts a folder's sessions into all pages. The folder's file `machine` names the machine and the date.
pub fn put(folder: &str) -> i32 {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let read_file = |path: &Path| std::fs::read_to_string(path).expect("UTF-8");
    let sessions: Vec<String> = files
        .filter(|path| path.file_name().is_some_and(|name| name != "machine"))
        .map(|path| read_file(&path))
        .collect();
    let machine = read_file(&Path::new(folder).join("machine"));
    for page in pages::all() {
        let old = read(&page);
        let new = sessions
            .iter()
            .fold(old.clone(), |page, session| with(&page, session));
        let new = of_machine(&new, machine.trim());
        if new != old {
            std::fs::write(root().join(&page), new).expect("a page can be written");
            println!("{page}");
        }
    }
    0
}

fn with(page: &str, session: &str) -> String {
    let session: Vec<&str> = session.trim_end().lines().collect();
    let mut lines = page.lines().peekable();
    let mut made: Vec<&str> = Vec::new();
    while let Some(line) = lines.next() {
        made.push(line);
        if line == "```console" && lines.peek() == session.first() {
            let mut block = Vec::new();
            while let Some(line) = lines.next_if(|line| *line != "```") {
                block.push(line);
            }
            made.extend(cut(&block, &session));
        }
    }
    made.join("\n") + "\n"
}

/// Cuts a session as its block is cut, with as many lines before and after the cut.
fn cut<'a>(block: &[&'a str], session: &[&'a str]) -> Vec<&'a str> {
    let Some(at) = block.iter().position(|line| *line == CUT) else {
        return session.to_vec();
    };
    let after = session.len().saturating_sub(block.len() - at - 1);
    let before = at.min(after);
    [&session[..before], &[CUT], &session[after..]].concat()
}

fn of_machine(page: &str, machine: &str) -> String {
    let [before, after] = MACHINE;
    let lines = page.lines().map(|line| match line.starts_with(before) {
        true => format!("{before}{machine}{after}"),
        false => line.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_cut() {
        let session = "$ tiptoe x\n1\n2\n3\n4\n";
        for (block, expected) in [
            ("$ tiptoe x\nold", "$ tiptoe x\n1\n2\n3\n4"),
            ("$ tiptoe x\nold\n[…]\nold", "$ tiptoe x\n1\n[…]\n4"),
            ("$ tiptoe x\n[…]", "$ tiptoe x\n[…]"),
            ("$ tiptoe y\nold", "$ tiptoe y\nold"),
        ] {
            let page = |block: &str| format!("a\n```console\n{block}\n```\nb\n");
            assert_eq!(with(&page(block), session), page(expected));
        }
    }
}
