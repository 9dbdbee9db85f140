//! Plans: how to find a variable in a process.

use tiptoe_event::LENGTHS;

use super::value::Type;
use crate::error::variable_error::VariableError;

/// The start of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// An address of the process.
    Absolute(u64),
    /// A link-time address.
    Module(u64),
    /// An offset in the file's thread-local block.
    ThreadLocal(u64),
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Adds this many bytes.
    Add(i64),
    /// Follows a pointer.
    Load {
        /// The pointer's expression.
        pointer: String,
    },
}

/// How to find a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The requested expression.
    pub expression: String,
    /// Where to start.
    pub start: Start,
    /// What to do next.
    pub steps: Vec<Step>,
    /// The value's type.
    pub value: Type,
    /// A pointer's size.
    pub word: u8,
}

/// Where a file is loaded in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedFile {
    /// Run-time minus link-time addresses.
    pub bias: u64,
    /// The address of the thread's own variables: [`Thread::block`](super::Thread::block).
    pub thread_block: Option<u64>,
}

/// Fills the bytes from an address, or returns `false`.
pub type Read<'r> = dyn FnMut(u64, &mut [u8]) -> bool + 'r;

impl Plan {
    /// Returns how many bytes to watch.
    pub fn length(&self, requested: Option<u8>) -> Result<u8, VariableError> {
        if let Some(length) = requested {
            return Ok(length);
        }
        let (expression, type_name) = (self.expression.clone(), self.value.name.clone());
        match (self.value.size, self.start) {
            (None, Start::Absolute(address)) => Err(VariableError::NoLength { address }),
            (None, _) => Err(VariableError::NoSize {
                expression,
                type_name,
            }),
            (Some(size), _) => {
                let length = u8::try_from(size).ok();
                let length = length.filter(|length| LENGTHS.contains(length));
                length.ok_or(VariableError::BadSize {
                    expression,
                    type_name,
                    size,
                })
            }
        }
    }

    /// Returns the variable's address in a process; `read` reads the process's memory.
    pub fn locate(&self, place: &LoadedFile, read: &mut Read<'_>) -> Result<u64, VariableError> {
        let mut address = match self.start {
            Start::Absolute(address) => address,
            Start::Module(address) => self.moved(address, place.bias)?,
            Start::ThreadLocal(offset) => {
                let name = self.expression.clone();
                let block = place.thread_block;
                let block = block.ok_or(VariableError::WhichThread { name })?;
                block.wrapping_add(offset)
            }
        };
        for step in &self.steps {
            address = match step {
                Step::Add(offset) => address.wrapping_add_signed(*offset),
                Step::Load { pointer } => self.load(pointer, address, read)?,
            };
        }
        Ok(match self.word {
            4 => address & u64::from(u32::MAX),
            _ => address,
        })
    }

    /// A file that is loaded below its link-time addresses has a negative bias.
    fn moved(&self, address: u64, bias: u64) -> Result<u64, VariableError> {
        let sum = match bias.cast_signed() < 0 {
            true => Some(address.wrapping_add(bias)),
            false => address.checked_add(bias),
        };
        let name = &self.expression;
        sum.ok_or_else(|| VariableError::BeyondMemory { name: name.clone() })
    }

    fn load(&self, pointer: &str, address: u64, read: &mut Read<'_>) -> Result<u64, VariableError> {
        let pointer = || pointer.to_owned();
        let mut bytes = [0; 8];
        let word = usize::from(self.word).min(bytes.len());
        if !read(address, &mut bytes[..word]) {
            let pointer = pointer();
            return Err(VariableError::Unmapped { pointer, address });
        }
        match u64::from_le_bytes(bytes) {
            0 => Err(VariableError::NullPointer { pointer: pointer() }),
            target => Ok(target),
        }
    }
}

/// Fails unless the address is a multiple of the length.
pub fn check_alignment(address: u64, length: u8) -> Result<(), VariableError> {
    match address.is_multiple_of(length.into()) {
        true => Ok(()),
        false => Err(VariableError::Unaligned { address, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::ValueKind;
    use super::*;

    fn plan(start: Start, steps: Vec<Step>) -> Plan {
        let value = Type {
            name: "int".into(),
            size: Some(4),
            kind: ValueKind::Integer { is_signed: true },
        };
        Plan {
            expression: "p->x".into(),
            start,
            steps,
            value,
            word: 8,
        }
    }

    fn load() -> Step {
        Step::Load {
            pointer: "p".into(),
        }
    }

    fn memory(address: u64, bytes: &mut [u8]) -> bool {
        let value: u64 = match address {
            0x5010 => 0x5018,
            0x5018 => 0,
            _ => return false,
        };
        bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        true
    }

    #[test]
    fn steps_are_taken_from_the_start() {
        let place = LoadedFile {
            bias: 0x5000,
            thread_block: None,
        };
        let check = |start, steps: &[Step], found| {
            let plan = plan(start, steps.to_vec());
            assert_eq!(plan.locate(&place, &mut memory), found);
        };
        let thread_less = VariableError::WhichThread {
            name: "p->x".into(),
        };
        check(Start::Module(0x10), &[], Ok(0x5010));
        check(Start::Module(0x10), &[load(), Step::Add(-8)], Ok(0x5010));
        check(Start::Absolute(0x10), &[Step::Add(4)], Ok(0x14));
        let beyond = VariableError::BeyondMemory {
            name: "p->x".into(),
        };
        check(Start::Module(u64::MAX - 7), &[], Err(beyond));
        check(Start::ThreadLocal(0x10), &[], Err(thread_less));
        let null = VariableError::NullPointer {
            pointer: "p".into(),
        };
        check(Start::Module(0x10), &[load(), load()], Err(null));
        let (pointer, address) = ("p".into(), 0x6000);
        let unmapped = VariableError::Unmapped { pointer, address };
        check(Start::Module(0x1000), &[load()], Err(unmapped));
    }

    #[test]
    fn lengths() {
        let mut plan = plan(Start::Module(0), Vec::new());
        assert_eq!((plan.length(None), plan.length(Some(1))), (Ok(4), Ok(1)));
        plan.value.size = Some(24);
        let error = plan.length(None).unwrap_err().to_string();
        assert!(
            error.contains("of 24 bytes") && error.contains("`p->x:8`"),
            "{error}"
        );
        plan.value.size = None;
        assert!(matches!(
            plan.length(None),
            Err(VariableError::NoSize { .. })
        ));
        assert!(check_alignment(0x1004, 4).is_ok() && check_alignment(0x1004, 8).is_err());
    }
}
