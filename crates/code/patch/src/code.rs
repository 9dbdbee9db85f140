//! Machine code before it has an address.

/// The target of a 32-bit relative field. `Cold` to `Futex` jump to the agent (our library). `Gate` is the word with
/// the address of the gate byte, 0 in a forked child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    Address(u64),
    Gate,
    Cold,
    Hook,
    Slow,
    Time,
    Futex,
    /// The word with the address of the table of thunks (followed calls return to them).
    Table,
    /// The word with a caller's return address.
    Caller(usize),
}

/// A 32-bit field at `at`, relative to `next`.
#[derive(Clone, Copy, Debug)]
struct Link {
    at: usize,
    next: usize,
    to: LinkTarget,
}

/// How unwinders see a place in our code: the program is `offset` bytes after the patched address, and our code has
/// pushed `depth` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnwindState {
    pub(crate) offset: usize,
    pub(crate) depth: i64,
}

#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardJump {
    end: usize,
    is_near: bool,
}

pub(crate) const IF_EQUAL: u8 = 4;
pub(crate) const IF_NOT_EQUAL: u8 = 5;
pub(crate) const IF_BELOW: u8 = 2;
/// Not below, unsigned; or no carry.
pub(crate) const NOT_BELOW: u8 = 3;
/// Less or equal, signed.
pub(crate) const NOT_ABOVE: u8 = 14;
pub(crate) const IF_GREATER: u8 = 15;

pub(crate) const STEP_OVER_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
pub(crate) const STEP_BACK: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
pub(crate) const PUSH_RAX: u8 = 0x50;
pub(crate) const POP_RAX: u8 = 0x58;

/// Code whose length must not depend on its address, because room is reserved before the address is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    bytes: Vec<u8>,
    links: Vec<Link>,
    unwind_states: Vec<(usize, UnwindState)>,
    followed: Vec<(usize, u32)>,
}

impl Code {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn set_unwind_state(&mut self, offset: usize, depth: i64) -> &mut Code {
        self.unwind_states
            .push((self.len(), UnwindState { offset, depth }));
        self
    }

    pub(crate) fn unwind_states(&self) -> &[(usize, UnwindState)] {
        &self.unwind_states
    }

    /// Appends a call that the trampoline follows without the agent. [`Code::bind_at`] must set its target, and the
    /// next [`LinkTarget::Caller`] must be its return address. The probe's words begin at `slot`.
    pub(crate) fn call_ahead(&mut self, slot: u32) -> ForwardJump {
        self.followed.push((self.len(), slot));
        self.field_ahead(&[0xe8])
    }

    pub(crate) fn followed(&self) -> &[(usize, u32)] {
        &self.followed
    }

    pub(crate) fn link_before(&self, next: usize) -> Option<LinkTarget> {
        let found = self.links.iter().find(|link| link.next == next);
        found.map(|link| link.to)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Code {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn put32(&mut self, value: i32) -> &mut Code {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn relative(&mut self, opcode: &[u8], to: LinkTarget, tail: &[u8]) -> &mut Code {
        self.put(opcode);
        let at = self.len();
        self.put32(0).put(tail);
        self.links.push(Link {
            at,
            next: self.len(),
            to,
        });
        self
    }

    pub(crate) fn append(&mut self, other: &Code) -> &mut Code {
        let base = self.len();
        self.put(&other.bytes);
        let moved = other.links.iter().map(|l| Link {
            at: base + l.at,
            next: base + l.next,
            ..*l
        });
        self.links.extend(moved);
        let stands = other
            .unwind_states
            .iter()
            .map(|&(at, stand)| (base + at, stand));
        self.unwind_states.extend(stands);
        self
    }

    /// Appends a jump whose target is bound later. It reaches 127 bytes, or 2 GiB if `near`.
    pub(crate) fn jump_ahead(&mut self, condition: u8, near: bool) -> ForwardJump {
        if near {
            return self.field_ahead(&[0x0f, 0x80 | condition]);
        }
        self.put(&[0x70 | condition, 0]);
        ForwardJump {
            end: self.len(),
            is_near: near,
        }
    }

    pub(crate) fn field_ahead(&mut self, opcode: &[u8]) -> ForwardJump {
        self.put(opcode).put32(0);
        ForwardJump {
            end: self.len(),
            is_near: true,
        }
    }

    pub(crate) fn bind_at(&mut self, ahead: ForwardJump, offset: usize) {
        debug_assert!(ahead.is_near, "a short jump does not reach everywhere");
        let distance = offset as i64 - ahead.end as i64;
        self.bytes[ahead.end - 4..ahead.end].copy_from_slice(&(distance as i32).to_le_bytes());
    }

    pub(crate) fn bind(&mut self, jump: ForwardJump) {
        let distance = self.len() - jump.end;
        if jump.is_near {
            self.bytes[jump.end - 4..jump.end].copy_from_slice(&(distance as u32).to_le_bytes());
        } else {
            debug_assert!(distance < 128, "a short jump over {distance} bytes");
            self.bytes[jump.end - 1] = distance as u8;
        }
    }

    pub(crate) fn jump_back(&mut self, condition: Option<u8>, offset: usize) {
        let distance = |end: usize| offset as i64 - end as i64;
        match (i8::try_from(distance(self.len() + 2)), condition) {
            (Ok(short), Some(cc)) => self.put(&[0x70 | cc, short as u8]),
            (Ok(short), None) => self.put(&[0xeb, short as u8]),
            (Err(_), Some(cc)) => {
                let near = distance(self.len() + 6) as i32;
                self.put(&[0x0f, 0x80 | cc]).put32(near)
            }
            (Err(_), None) => {
                let near = distance(self.len() + 5) as i32;
                self.put(&[0xe9]).put32(near)
            }
        };
    }

    pub(crate) fn reach(&self) -> (u64, u64) {
        let mut reach = (0, u64::MAX);
        for link in &self.links {
            if let LinkTarget::Address(target) = link.to {
                let at_zero = i128::from(target) - link.next as i128;
                let low = (at_zero - i128::from(i32::MAX)).clamp(0, u64::MAX.into()) as u64;
                let high = (at_zero - i128::from(i32::MIN)).clamp(0, u64::MAX.into()) as u64;
                reach = (reach.0.max(low), reach.1.min(high));
            }
        }
        reach
    }

    pub(crate) fn link(&self, at: u64, resolve: impl Fn(LinkTarget) -> u64) -> Option<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        for link in &self.links {
            let next = at.wrapping_add(link.next as u64);
            let distance = resolve(link.to).wrapping_sub(next) as i64;
            let field = i32::try_from(distance).ok()?;
            bytes[link.at..link.at + 4].copy_from_slice(&field.to_le_bytes());
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_next_instruction() {
        let mut code = Code::default();
        code.put(&[0x90])
            .relative(&[0x80, 0x3d], LinkTarget::Gate, &[0]);
        let bytes = code.link(0x1000, |_| 0x900).expect("near");
        assert_eq!(bytes, [0x90, 0x80, 0x3d, 0xf8, 0xf8, 0xff, 0xff, 0]);
        assert!(code.link(0x1000, |_| 0x1_0000_0000).is_none());
    }

    #[test]
    fn reach_holds_exactly_where_linking_works() {
        let mut code = Code::default();
        code.relative(&[0xe9], LinkTarget::Address(0x2_0000_0000), &[]);
        let (low, high) = code.reach();
        let links = |at| code.link(at, |_| 0x2_0000_0000).is_some();
        assert!(links(low) && links(high));
        assert!(!links(low - 1) && !links(high + 1));
    }

    #[test]
    fn local_jumps_choose_their_size() {
        let mut code = Code::default();
        let over = code.jump_ahead(IF_EQUAL, false);
        code.put(&[0x90; 3]).bind(over);
        code.jump_back(None, 2);
        code.put(&[0x90; 200]);
        code.jump_back(Some(IF_EQUAL), 0);
        let bytes = code.link(0, |_| 0).expect("no links");
        assert_eq!(bytes[..7], [0x74, 3, 0x90, 0x90, 0x90, 0xeb, 0xfb]);
        assert_eq!(bytes[207..], [0x0f, 0x84, 0x2b, 0xff, 0xff, 0xff]);
    }
}
