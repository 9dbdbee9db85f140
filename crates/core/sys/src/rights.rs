//! A thread's rights, compared with those of other threads of its process.

use core::ffi::CStr;

/// A thread's rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Real, effective, saved and file system ids of the user, then of the group.
    ids: [[u32; 4]; 2],
    /// A hash of the group list; 0 if the list is empty.
    groups: u64,
    /// The seccomp mode plus the number of filters. Each restriction increases the sum.
    pub seccomp: u32,
    /// A number for the target of each link in [`PLACES`]; 0 if unknown.
    places: [u64; PLACES.len()],
}

/// Links in a thread's /proc folder that identify its root and namespaces. Omits `ns/*_for_children`, because these do
/// not confine the thread itself.
pub const PLACES: [&CStr; 7] = [
    c"root",
    c"ns/mnt",
    c"ns/net",
    c"ns/user",
    c"ns/ipc",
    c"ns/uts",
    c"ns/cgroup",
];

impl Rights {
    /// Returns the rights of the thread with this `status` file; `None` if the file ends before its seccomp line.
    /// `place` must return the device and inode of one of [`PLACES`].
    pub fn of(status: &[u8], place: impl Fn(&CStr) -> Option<[u64; 2]>) -> Option<Rights> {
        let mut rights = Rights::default();
        let mut is_whole = false;
        for line in status.split(|byte| *byte == b'\n') {
            let colon = line.iter().position(|byte| *byte == b':');
            let Some((key, value)) = colon.and_then(|at| line.split_at_checked(at)) else {
                continue;
            };
            match key {
                b"Uid" => rights.ids[0] = numbers(value),
                b"Gid" => rights.ids[1] = numbers(value),
                b"Groups" => rights.groups = hash(value),
                b"Seccomp" | b"Seccomp_filters" => {
                    let [number, ..] = numbers(value);
                    rights.seccomp = rights.seccomp.saturating_add(number);
                    is_whole = true;
                }
                _ => {}
            }
        }
        for (to, name) in rights.places.iter_mut().zip(PLACES) {
            *to = place(name).map_or(0, |[device, inode]| device.rotate_left(40) ^ inode);
        }
        is_whole.then_some(rights)
    }

    /// Returns whether another thread has all these rights. Ignores the user or group ids if the saved id differs from
    /// the effective one, as in tiptoe's own thread once that thread has given up its rights.
    pub fn are_within(&self, other: &Rights) -> bool {
        let same = |(own, other): (&u64, &u64)| *own == 0 || *other == 0 || own == other;
        let known = |(own, other): (&[u32; 4], &[u32; 4])| {
            let [_, effective, saved, _] = own;
            effective != saved || other.contains(saved)
        };
        self.ids.iter().zip(&other.ids).all(known)
            && (self.groups == 0 || self.groups == other.groups)
            && self.places.iter().zip(&other.places).all(same)
    }
}

fn numbers(text: &[u8]) -> [u32; 4] {
    let mut numbers = [0u32; 4];
    let words = text.split(|byte| !byte.is_ascii_digit());
    let words = words.filter(|word| !word.is_empty());
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = word.iter().fold(0, |number, digit| {
            number.wrapping_mul(10).wrapping_add(u32::from(digit & 15))
        });
    }
    numbers
}

fn hash(text: &[u8]) -> u64 {
    let digits = text.get(1..).unwrap_or(&[]).iter();
    if digits.clone().all(u8::is_ascii_whitespace) {
        return 0;
    }
    digits.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(uids: &str, groups: &str, seccomp: &str, net: u64) -> Rights {
        let mut text = [0u8; 256];
        let parts = [
            "Name:\tx\nUid:\t",
            uids,
            "\nGid:\t7\t7\t8\t7\nGroups:\t",
            groups,
            " \nSeccomp:\t",
            seccomp,
            "\n",
        ];
        let bytes = parts.iter().flat_map(|part| part.bytes());
        text.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        let place = |name: &CStr| (name == c"ns/net").then_some([4, net]);
        Rights::of(&text, place).expect("whole")
    }

    #[test]
    fn a_thread_has_more_if_an_id_a_group_or_a_place_is_its_own() {
        let other = rights("1\t2\t2\t2", "5", "2", 9);
        for (own, within) in [
            (rights("1\t1\t1\t1", "", "0", 9), true),
            (rights("3\t3\t3\t3", "", "0", 9), false),
            (rights("3\t3\t4\t3", "", "0", 9), true),
            (rights("1\t1\t1\t1", "5", "0", 9), true),
            (rights("1\t1\t1\t1", "6", "0", 9), false),
            (rights("1\t1\t1\t1", "", "0", 8), false),
        ] {
            assert_eq!(own.are_within(&other), within, "{own:?}");
        }
        assert_eq!(other.seccomp, 2);
        assert_eq!(Rights::of(b"Name:\tx\n", |_| None), None);
    }
}
