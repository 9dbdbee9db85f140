//! Messages about cgroups change a tree, which must equal a plain list of paths. Walks through ancestors must end.
//! In the input, three bytes before each piece give its length, a kind and a cgroup's id. The piece is a whole
//! message, or the rest of a message with that kind and id. One kind is no message: the tree forgets the cgroup.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/host/kernel/src/cgroups/cgroups_layout.rs"]
#[expect(
    dead_code,
    reason = "of all that lies in shared memory this is what has to be read"
)]
mod layout;
#[path = "../../crates/host/kernel/src/name.rs"]
mod name;
#[path = "../../crates/host/kernel/src/cgroups/names.rs"]
#[expect(dead_code, reason = "nothing is walked here")]
mod names;
use layout::CgroupChange;
use names::Tree;

fuzz_target!(|input: &[u8]| {
    let (mut tree, mut list) = (Tree::default(), PathList::default());
    let mut rest = input;
    while let Some((&[head, kind, id], after)) = rest.split_first_chunk::<3>() {
        let (piece, after) = after.split_at(usize::from(head & 0x7f).min(after.len()));
        rest = after;
        if head & 0x80 != 0 {
            read(piece, &mut tree, &mut list);
        } else if kind % 8 == 4 {
            let id = u64::from(id);
            tree.forget(id);
            list.forget(id);
        } else {
            let words = [u64::from(kind % 5), u64::from(id)].map(u64::to_ne_bytes);
            read(&[&words.concat(), piece].concat(), &mut tree, &mut list);
        }
        list.compare(&tree);
    }
});

fn read(bytes: &[u8], tree: &mut Tree, list: &mut PathList) {
    let news = CgroupChange::read(bytes);
    let word = |at: usize| {
        let word = bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    };
    let is_message = |what: u64, of: u64| word(0) == Some(what) && word(8) == Some(of);
    match news {
        Some(CgroupChange::Created(id, path)) => {
            assert!(is_message(1, id) && !path.contains('\0'));
            let text = bytes[16..]
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default();
            assert_eq!(path, String::from_utf8_lossy(text));
            tree.add(id, &path);
            list.add(id, &path);
        }
        Some(CgroupChange::Removed(id)) => {
            assert!(is_message(3, id));
            tree.remove(id);
            list.gone(|other, _| other == id);
        }
        Some(CgroupChange::Moved) => assert_eq!(word(0), Some(2)),
        None => assert!(bytes.len() < 16 || !matches!(word(0), Some(1..=3))),
    }
}

#[derive(Default)]
struct PathList(BTreeMap<u64, (String, bool)>);

impl PathList {
    fn add(&mut self, id: u64, path: &str) {
        if self.0.contains_key(&id) {
            return;
        }
        let path = if path.is_empty() { "/" } else { path };
        self.gone(|_, other| other == path);
        self.0.insert(id, (path.to_owned(), false));
    }

    fn gone(&mut self, is_it: impl Fn(u64, &str) -> bool) {
        let it = self
            .0
            .iter_mut()
            .filter(|(id, (path, _))| is_it(**id, path));
        it.for_each(|(_, (_, is_removed))| *is_removed = true);
    }

    fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }

    fn compare(&self, tree: &Tree) {
        let all = tree
            .iter()
            .map(|(id, node)| (id, (node.path.clone(), node.is_removed)));
        assert!(all.eq(self.0.iter().map(|(id, it)| (*id, it.clone()))));
        for id in self.0.keys().copied().chain([u64::MAX]) {
            assert!(tree.line(id).take(tree.len() + 2).count() <= tree.len() + 1);
        }
    }
}
