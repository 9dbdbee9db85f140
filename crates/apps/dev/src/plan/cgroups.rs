use std::collections::HashMap;

use tiptoe_schedule::{Label, Tree};

use crate::failure::{CgroupsFault, Failure};

const MOST: usize = 100_000;

#[derive(Debug)]
pub struct Cgroups {
    /// The counted cgroups, their ancestors, and the cgroups of a trace.
    pub tree: Tree,
    /// The counted cgroups, with their names as given.
    pub counted: Vec<(String, Label)>,
    /// The cgroups of `tree` by path, without slashes at the ends.
    labels: HashMap<String, Label>,
}

impl Cgroups {
    /// Parses `web,db,batch/nightly`, or a number of cgroups. Fails for the root, and for duplicates.
    pub fn named(list: Option<&str>) -> Result<Cgroups, Failure> {
        let mut cgroups = Cgroups {
            tree: Tree::new(),
            counted: Vec::new(),
            labels: HashMap::from([(String::new(), Label::ROOT)]),
        };
        let Some(list) = list else {
            return Ok(cgroups);
        };
        let names: Vec<String> = match list.parse::<usize>() {
            Ok(1..=MOST) => {
                let count = list.parse().unwrap_or(0);
                (1..=count)
                    .map(|number: usize| format!("cgroup{number}"))
                    .collect()
            }
            Ok(_) => return Err(bad(list, CgroupsFault::BadNumber(MOST))),
            Err(_) => list.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        for name in names {
            if name.is_empty() {
                return Err(bad(list, CgroupsFault::NoName));
            }
            let label = cgroups
                .label(&name)
                .ok_or_else(|| bad(list, CgroupsFault::BadName))?;
            if label == Label::ROOT {
                return Err(bad(list, CgroupsFault::Root));
            }
            if cgroups.counted.iter().any(|(_, counted)| *counted == label) {
                return Err(bad(list, CgroupsFault::Twice(name)));
            }
            cgroups.counted.push((name, label));
        }
        Ok(cgroups)
    }

    /// Returns the cgroup of a path, and creates it if missing; `None` if a name in the path is empty or the tree is
    /// full.
    pub fn label(&mut self, path: &str) -> Option<Label> {
        let path = path.trim_matches('/');
        if let Some(label) = self.labels.get(path) {
            return Some(*label);
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() || path.contains("//") {
            return None;
        }
        let parent = self.label(parent)?;
        let label = self.tree.create(parent)?;
        self.labels.insert(path.to_owned(), label);
        Some(label)
    }
}

fn bad(list: &str, fault: CgroupsFault) -> Failure {
    let list = list.to_owned();
    Failure::BadCgroups { list, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_a_tree() {
        let cgroups = Cgroups::named(Some("a,b/c, /a/d/")).unwrap();
        let parents: Vec<Option<Label>> = cgroups
            .counted
            .iter()
            .map(|(_, label)| cgroups.tree.parent(*label))
            .collect();
        assert_eq!(parents[0], Some(Label::ROOT));
        assert_eq!(parents[2], Some(cgroups.counted[0].1));
        assert_eq!(cgroups.tree.len(), 5);
        assert_eq!(Cgroups::named(Some("1000")).unwrap().counted.len(), 1000);
        assert!(Cgroups::named(None).unwrap().counted.is_empty());
    }

    #[test]
    fn bad_lists_of_cgroups_are_refused() {
        for list in ["0", "100001", "", "a,,b", "a,a/", "/", "a,a", "a//b,a///b/"] {
            assert!(Cgroups::named(Some(list)).is_err(), "{list}");
        }
    }
}
