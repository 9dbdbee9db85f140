//! The line that every session ends with.

use tiptoe_session::{Basis, Cost};

use crate::number::{percent, plural, unit_ns};

/// What tracing cost: `cost of tracing: 0.31% of the target's CPU time (0.22 to
/// 0.43, estimated from N hits x C ns, calibrated on this machine)`.
pub fn cost_line(cost: &Cost) -> String {
    let (share, low, high) = (
        percent(cost.fraction),
        percent(cost.low),
        percent(cost.high),
    );
    let known = match cost.basis {
        Basis::Estimated => format!(
            "estimated from {} {} x {} ns, calibrated on this machine",
            cost.hits,
            plural(cost.hits, "hit"),
            unit_ns(cost.unit_ns)
        ),
        Basis::Measured => "measured by switching tracing off and on".to_owned(),
    };
    let rejected = cost.rejected_unit_ns.map_or_else(String::new, |ns| {
        let ns = unit_ns(ns);
        format!("; hits that were rejected are not in it: about {ns} ns each")
    });
    format!(
        "cost of tracing: {share}% of the target's CPU time ({low} to {high}, {known}){rejected}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_hits_are_told_beside_the_cost() {
        let mut cost = Cost::default();
        assert!(!cost_line(&cost).contains("rejected"));
        cost.rejected_unit_ns = Some(1.25);
        let end = "on this machine); hits that were rejected are not in it: about 1.25 ns each";
        assert!(cost_line(&cost).ends_with(end), "{}", cost_line(&cost));
    }
}
