//! Finds the code that unwind information describes. Calls from other code are counted, not followed to their return.
//! A followed call returns to a stub of tiptoe's, at which a runtime that generates code and walks its own stacks
//! would crash.

use std::ops::Range;

use tiptoe_wire::calls::MAX_EXTENTS;

use crate::module::Module;

/// The ranges are sorted and disjoint.
pub fn of(modules: &[Module]) -> Vec<Range<u64>> {
    let of_one = |module: &Module| {
        let bias = module.bias;
        let code = module.object.image.described().iter();
        let code = code.map(move |one| one.start.wrapping_add(bias)..one.end.wrapping_add(bias));
        code.collect::<Vec<_>>()
    };
    let mut code: Vec<Range<u64>> = modules.iter().flat_map(of_one).collect();
    code.sort_by_key(|one| one.start);
    close_gaps(&mut code, MAX_EXTENTS);
    code
}

/// Closes the smallest gaps until at most `most` ranges are left.
fn close_gaps(code: &mut Vec<Range<u64>>, most: usize) {
    let gap = |one: &Range<u64>, next: &Range<u64>| next.start.saturating_sub(one.end);
    let Some(surplus) = code.len().checked_sub(most + 1) else {
        return;
    };
    let mut gaps: Vec<u64> = code.windows(2).map(|two| gap(&two[0], &two[1])).collect();
    let (_, widest, _) = gaps.select_nth_unstable(surplus);
    let widest = *widest;
    code.dedup_by(|next, one| {
        let is_closed = gap(one, next) <= widest;
        if is_closed {
            one.end = one.end.max(next.end);
        }
        is_closed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_gaps_are_closed() {
        let all = [0..10, 20..30, 35..40, 100..110];
        let left = |most| {
            let mut code = all.to_vec();
            close_gaps(&mut code, most);
            code
        };
        assert_eq!(left(4), all);
        assert_eq!(left(3), [0..10, 20..40, 100..110]);
        assert_eq!(left(2), [0..40, 100..110]);
    }
}
