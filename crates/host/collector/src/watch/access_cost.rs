//! The cost of hits, in total and by variable.

use tiptoe_event::Cost as HitCost;
use tiptoe_session::{Cost, Event, Variable};

/// Sets each event's part of the cost. The parts sum to at most `cpu_ns`, the time that the process used.
pub(super) fn share_out(
    events: &mut [Event],
    variables: &[Variable],
    unit: HitCost,
    cpu_ns: u64,
) -> Cost {
    let hits: u64 = variables.iter().map(|variable| variable.hits).sum();
    let all = unit.times(hits);
    let payable = match cpu_ns {
        0 => 1.0,
        cpu_ns => (cpu_ns as f64 / all.ns).min(1.0),
    };
    for (event, variable) in events.iter_mut().zip(variables) {
        event.cost_ns = unit.times(variable.hits).ns * payable;
    }
    Cost::estimated(hits, all, cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_variables_were_more_than_all_time() {
        let variable = |hits| Variable {
            hits,
            ..Variable::default()
        };
        let variables = [variable(30), variable(10), variable(0)];
        let unit = HitCost::between(1_000.0, 2_000.0, 4_000.0);
        let check = |cpu_ns: u64, want: [f64; 3]| {
            let mut events = [(); 3].map(|()| Event::default());
            let cost = share_out(&mut events, &variables, unit, cpu_ns);
            assert_eq!(
                events.each_ref().map(|event| event.cost_ns),
                want,
                "{cpu_ns}"
            );
            assert!(cost.fraction <= 1.0, "{cost:?}");
        };
        check(1_000_000, [60_000.0, 20_000.0, 0.0]);
        check(40_000, [30_000.0, 10_000.0, 0.0]);
        check(0, [60_000.0, 20_000.0, 0.0]);
    }
}
