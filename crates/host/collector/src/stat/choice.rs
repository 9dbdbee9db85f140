//! Chooses cgroups by names and patterns.

use std::path::Path;

use tiptoe_event::counter::nearest_of;
use tiptoe_kernel::cgroups::Tree;
use tiptoe_session::StatNote;
use tiptoe_symbol::glob;

use crate::error::Error;

#[derive(Clone, Debug)]
pub(super) struct Choice {
    patterns: Vec<String>,
    used: Vec<bool>,
    chosen: Vec<u64>,
}

impl Choice {
    /// Fails if a name matches no cgroup; a pattern without a match may match later cgroups. A name may also be the
    /// path of a folder in `root`, where cgroups are mounted.
    pub(super) fn of(patterns: &[String], root: &Path, tree: &Tree) -> Result<Choice, Error> {
        if patterns.iter().any(|pattern| pattern.trim().is_empty()) {
            return Err(Error::NamelessCgroup);
        }
        let mut choice = Choice {
            used: vec![false; patterns.len()],
            patterns: patterns
                .iter()
                .map(|pattern| plain(below(root, pattern, tree)).to_owned())
                .collect(),
            chosen: Vec::new(),
        };
        choice.refuse_missing(tree)?;
        choice.choose(tree);
        Ok(choice)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.chosen.iter().copied()
    }

    /// Adds new matches after earlier matches, ordered by pattern, then by name.
    pub(super) fn choose(&mut self, tree: &Tree) {
        let place = |path: &str| {
            let mut patterns = self.patterns.iter();
            patterns.position(|pattern| glob::matches(pattern, path))
        };
        let mut new: Vec<(usize, &str, u64)> = tree
            .iter()
            .filter(|(id, _)| !self.chosen.contains(id))
            .filter_map(|(id, node)| {
                let path = plain(&node.path);
                Some((place(path)?, path, id))
            })
            .collect();
        new.sort_unstable();
        for (place, _, _) in &new {
            self.used[*place] = true;
        }
        let new: Vec<u64> = new.into_iter().map(|(_, _, id)| id).collect();
        self.chosen.extend(new);
    }

    pub(super) fn unused(&self) -> Option<StatNote> {
        let unused = self
            .patterns
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used);
        let patterns: Vec<String> = unused.map(|(pattern, _)| pattern.clone()).collect();
        (!patterns.is_empty()).then_some(StatNote::UnmatchedPatterns { patterns })
    }

    pub(super) fn forget(&mut self, ids: &[u64]) {
        self.chosen.retain(|id| !ids.contains(id));
    }

    fn refuse_missing(&self, tree: &Tree) -> Result<(), Error> {
        let paths: Vec<&str> = tree.iter().map(|(_, node)| plain(&node.path)).collect();
        let mut patterns = self.patterns.iter();
        let missing =
            patterns.find(|pattern| !glob::is_glob(pattern) && !paths.contains(&pattern.as_str()));
        let Some(missing) = missing else {
            return Ok(());
        };
        let near = nearest_of(missing, paths.iter().copied());
        Err(Error::NoSuchCgroup {
            name: missing.clone(),
            near: near.into_iter().flatten().map(str::to_owned).collect(),
        })
    }
}

/// Strips `root` from a folder's path, unless a cgroup has the whole path as its name.
fn below<'p>(root: &Path, pattern: &'p str, tree: &Tree) -> &'p str {
    let is_cgroup = || {
        tree.iter()
            .any(|(_, node)| plain(&node.path) == plain(pattern))
    };
    let path = root.to_str().and_then(|root| pattern.strip_prefix(root));
    match path.filter(|path| path.is_empty() || path.starts_with('/')) {
        Some(path) if !is_cgroup() => path,
        _ => pattern,
    }
}

pub(super) fn plain(path: &str) -> &str {
    match path.trim_matches('/') {
        "" => "/",
        path => path,
    }
}

pub(super) fn name(tree: &Tree, id: u64) -> String {
    match tree.get(id) {
        Some(node) => plain(&node.path).to_owned(),
        None => format!("(id {id})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_choose() {
        let mut tree = Tree::default();
        for (id, path) in [(1, "/"), (2, "/b"), (3, "/b/two"), (4, "/b/one"), (5, "/c")] {
            tree.add(id, path);
        }
        let of = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|one| one.to_string()).collect();
            Choice::of(&patterns, Path::new("/sys/fs/cgroup"), &tree)
        };
        let ids = |patterns: &[&str]| of(patterns).unwrap().ids().collect::<Vec<_>>();
        assert_eq!(ids(&["c", "/b/*", "/"]), [5, 4, 3, 1]);
        assert_eq!(ids(&["d*"]), []);
        assert_eq!(ids(&["/sys/fs/cgroup/b/two/"]), [3]);
        assert_eq!(ids(&["/sys/fs/cgroup/b/*", "/sys/fs/cgroup"]), [4, 3, 1]);
        assert!(of(&["/sys/fs/cgroups/b"]).is_err());
        assert!(
            of(&["b/on"])
                .unwrap_err()
                .to_string()
                .contains("no cgroup 'b/on'")
        );

        let unused = of(&["b/*", "d*"]).unwrap().unused();
        let patterns = vec!["d*".to_owned()];
        assert_eq!(unused, Some(StatNote::UnmatchedPatterns { patterns }));
        assert!(
            of(&["b", ""])
                .unwrap_err()
                .to_string()
                .contains("a name is missing")
        );

        let mut choice = of(&["b/*"]).unwrap();
        tree.add(6, "/b/a");
        choice.choose(&tree);
        choice.choose(&tree);
        assert_eq!(choice.ids().collect::<Vec<_>>(), [4, 3, 6]);
        assert_eq!(
            (name(&tree, 4), name(&tree, 1)),
            ("b/one".into(), "/".into())
        );
        assert_eq!((name(&tree, 9), choice.unused()), ("(id 9)".into(), None));
    }
}
