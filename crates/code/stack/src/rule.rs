//! One step up a stack.
//!
//! | bits | of a rule |
//! |---|---|
//! | 0-1 | 0: unknown; 1: outermost; 2: the CFA is relative to the stack pointer; 3: to %rbp |
//! | 2-14 | the CFA's distance above that register, in words |
//! | 15-25 | the saved %rbp's distance below the CFA, in words; 0: unchanged |

/// What the CFA is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer.
    Sp = 2,
    /// %rbp.
    Bp = 3,
}

/// How to step to the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(u32);

/// The registers that a walk needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The instruction pointer; in a caller's frame, the return address.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// %rbp.
    pub bp: u64,
}

const WORD: u32 = 8;
const CFA: u32 = 2;
const SAVED: u32 = 15;
const CFA_WORDS: u32 = (1 << (SAVED - CFA)) - 1;
const SAVED_WORDS: u32 = (1 << (Rule::BITS - SAVED)) - 1;
/// The most bytes from the stack pointer to the CFA of an intact stack.
const FARTHEST: u64 = (CFA_WORDS * WORD) as u64;

impl Rule {
    /// A rule's width.
    pub const BITS: u32 = 26;
    /// The caller cannot be found, so a walk stops.
    pub const UNKNOWN: Rule = Rule(0);
    /// A thread's first function, where a walk is complete.
    pub const OUTERMOST: Rule = Rule(1);

    /// Returns a rule from distances in bytes; `None` unless both are whole words and fit.
    pub fn new(base: Base, cfa: u32, saved: Option<u32>) -> Option<Rule> {
        let words = |bytes: u32, most: u32| {
            let fits = bytes.is_multiple_of(WORD) && (1..=most).contains(&(bytes / WORD));
            fits.then_some(bytes / WORD)
        };
        let cfa = words(cfa, CFA_WORDS)?;
        let saved = saved.map_or(Some(0), |saved| words(saved, SAVED_WORDS))?;
        Some(Rule(base as u32 | cfa << CFA | saved << SAVED))
    }

    /// Returns the rule's number.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the rule that the low bits encode.
    #[inline]
    pub const fn from_bits(bits: u32) -> Rule {
        Rule(bits & ((1 << Rule::BITS) - 1))
    }

    /// Returns whether the CFA is relative to the stack pointer.
    #[inline]
    pub const fn is_by_sp(self) -> bool {
        self.0 & 3 == Base::Sp as u32
    }

    /// Returns the CFA. `None` if the rule has no CFA, or if the CFA is not 1 to 8,191 words above the stack pointer.
    #[inline]
    pub fn cfa(self, frame: &Frame) -> Option<u64> {
        let above = u64::from(self.0 >> CFA & CFA_WORDS) * 8;
        if self.is_by_sp() {
            return frame.sp.checked_add(above).filter(|_| above > 0);
        }
        if self.0 & (Base::Sp as u32) == 0 {
            return None;
        }
        let cfa = frame.bp.wrapping_add(above);
        let above = cfa.checked_sub(frame.sp)?;
        // The subtraction wraps around if the CFA is at the stack pointer. The rotation moves a misaligned CFA's low
        // bits to the top. Either result is too large, so the CFA is refused.
        let is_near = above.wrapping_sub(8).rotate_right(3) < FARTHEST / 8;
        is_near.then_some(cfa)
    }

    /// Returns the caller's frame; `None` without a CFA, or if `read` fails.
    #[inline]
    pub fn step(self, frame: &Frame, read: impl Fn(u64) -> Option<u64>) -> Option<Frame> {
        let cfa = self.cfa(frame)?;
        let saved = u64::from(self.0 >> SAVED & SAVED_WORDS) * 8;
        // If %rbp's slot is below the stack pointer, the function has popped it, so %rbp is already the caller's. The
        // slot must not be read, because it may be overwritten.
        let bp = match saved {
            1.. if saved <= cfa - frame.sp => read(cfa - saved)?,
            _ => frame.bp,
        };
        let pc = read(cfa - 8)?;
        Some(Frame { pc, sp: cfa, bp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads four words at 0x1000: 0x70 to 0x73.
    fn read(at: u64) -> Option<u64> {
        let index = at.checked_sub(0x1000)? / 8;
        (at.is_multiple_of(8) && index < 4).then_some(0x70 | index)
    }

    #[track_caller]
    fn check(base: Base, [cfa, saved]: [u32; 2], bp: u64, caller: Option<[u64; 3]>) {
        let rule = Rule::new(base, cfa, Some(saved).filter(|saved| *saved > 0));
        let rule = rule.expect("it fits");
        assert_eq!(Rule::from_bits(rule.bits() | 7 << Rule::BITS), rule);
        let frame = Frame {
            pc: 1,
            sp: 0x1000,
            bp,
        };
        let caller = caller.map(|[pc, sp, bp]| Frame { pc, sp, bp });
        assert_eq!(rule.step(&frame, read), caller);
    }

    #[test]
    fn a_step_leads_to_the_caller() {
        check(Base::Sp, [8, 0], 5, Some([0x70, 0x1008, 5]));
        check(Base::Sp, [32, 16], 5, Some([0x73, 0x1020, 0x72]));
        check(Base::Bp, [16, 16], 0x1008, Some([0x72, 0x1018, 0x71]));
        check(Base::Sp, [8, 16], 5, Some([0x70, 0x1008, 5]));
    }

    #[test]
    fn a_stack_leads_upwards_and_not_far() {
        for bp in [0, 0xff0, 0x1001, 0x1000 + (1 << 17), u64::MAX - 7] {
            check(Base::Bp, [16, 16], bp, None);
        }
        check(Base::Sp, [40, 0], 0, None);
        let frame = Frame {
            pc: 1,
            sp: u64::MAX - 15,
            bp: 0,
        };
        let rule = Rule::new(Base::Sp, 32, None).expect("it fits");
        assert_eq!(rule.step(&frame, |_| None), None);
        for nothing in [Rule::UNKNOWN, Rule::OUTERMOST] {
            assert_eq!(nothing.step(&frame, |_| Some(1)), None);
        }
    }

    #[test]
    fn distances_that_do_not_fit_are_refused() {
        for (cfa, saved) in [
            (0, None),
            (12, None),
            (1 << 17, None),
            (16, Some(4)),
            (16, Some(1 << 16)),
        ] {
            assert_eq!(Rule::new(Base::Sp, cfa, saved), None);
        }
    }
}
