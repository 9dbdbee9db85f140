//! Temporary while the calibration room is being written.
use tiptoe_event::Cost;
/// x
#[derive(Clone, Copy)]
pub struct UnitCosts {
    /// x
    pub count: Cost,
    /// x
    pub filtered: Cost,
    /// x
    pub trap: Cost,
    /// x
    pub kernel: Cost,
}
/// x
pub struct Want {
    /// x
    pub trap: bool,
    /// x
    pub kernel: bool,
}
/// x
pub fn unit_costs(_: Want) -> UnitCosts {
    let c = Cost::between(0.6, 0.9, 1.2);
    UnitCosts {
        count: c,
        filtered: c,
        trap: c,
        kernel: c,
    }
}
impl UnitCosts {
    /// x
    pub fn extra_for_sites(_: usize) -> f64 {
        0.0
    }
}
