use super::counter_names;

/// The number of suggested names.
pub const NEAR: usize = 3;
const FURTHEST: usize = 4;
/// The longest name that is compared, in arrays on the stack.
const LONGEST: usize = 64;

/// Returns the names with the fewest wrong, missing, extra or swapped letters.
pub fn nearest(name: &str) -> [Option<&'static str>; NEAR] {
    nearest_of(name, counter_names())
}

/// Returns the nearest names in `all`, as [`nearest`] does.
pub fn nearest_of<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> [Option<&'a str>; NEAR] {
    let mut found: [Option<(usize, &str)>; NEAR] = [None; NEAR];
    for known in all {
        let Some(far) = distance(name.as_bytes(), known.as_bytes()) else {
            continue;
        };
        // At a distance of the name's length no letter matches.
        if far > FURTHEST || far >= name.len() {
            continue;
        }
        let mut candidate = Some((far, known));
        for place in &mut found {
            let is_nearer = match (*place, candidate) {
                (Some((placed, _)), Some((far, _))) => far < placed,
                (None, _) => true,
                (_, None) => false,
            };
            if is_nearer {
                core::mem::swap(place, &mut candidate);
            }
        }
    }
    found.map(|place| place.map(|(_, name)| name))
}

fn distance(left: &[u8], right: &[u8]) -> Option<usize> {
    if left.len() > LONGEST || right.len() > LONGEST {
        return None;
    }
    let is_same = |a: usize, b: usize| left[a].eq_ignore_ascii_case(&right[b]);
    let (mut before, mut last, mut row) = ([0; LONGEST + 1], [0; LONGEST + 1], [0; LONGEST + 1]);
    for (at, cell) in last.iter_mut().enumerate() {
        *cell = at;
    }
    for a in 0..left.len() {
        row[0] = a + 1;
        for b in 0..right.len() {
            let changed = last[b] + usize::from(!is_same(a, b));
            let mut best = changed.min(last[b + 1] + 1).min(row[b] + 1);
            if a > 0 && b > 0 && is_same(a, b - 1) && is_same(a - 1, b) {
                best = best.min(before[b - 1] + 1);
            }
            row[b + 1] = best;
        }
        (before, last) = (last, row);
    }
    Some(last[right.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (left, right, far) in [
            ("", "", 0),
            ("", "abc", 3),
            ("cycles", "cycles", 0),
            ("cylces", "cycles", 1),
            ("CYCLES", "cycles", 0),
            ("cycle", "cycles", 1),
            ("cyycles", "cycles", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(left.as_bytes(), right.as_bytes()), Some(far));
            assert_eq!(distance(right.as_bytes(), left.as_bytes()), Some(far));
        }
        assert_eq!(distance(&[b'a'; 65], b"a"), None);
    }

    #[test]
    fn the_nearest_comes_first() {
        assert_eq!(nearest("cylces")[0], Some("cycles"));
        assert_eq!(nearest("page-fault")[0], Some("page-faults"));
        assert_eq!(nearest("llc-loads")[0], Some("LLC-loads"));
        assert_eq!(nearest("nothing-of-the-kind"), [None; NEAR]);
        assert_eq!(nearest(""), [None; NEAR]);
    }
}
