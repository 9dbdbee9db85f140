use crate::debug::DebugLink;
use crate::error::{Error, kind};

/// The word size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// i386, or x32 on x86-64.
    Elf32,
    /// 64-bit.
    Elf64,
}

impl Class {
    pub(crate) fn word(self) -> u8 {
        match self {
            Class::Elf32 => 4,
            Class::Elf64 => 8,
        }
    }
}

/// The instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// i386.
    X86,
}

/// The identity of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Word size.
    pub class: Class,
    /// Instruction set.
    pub machine: Machine,
    /// Whether link-time addresses are relative to the load address (`ET_DYN`).
    pub position_independent: bool,
    /// Whether the file is a program. Libraries with an interpreter, such as libc, count as programs.
    pub program: bool,
    /// The path of the dynamic loader.
    pub interpreter: Option<String>,
    /// A library's own name.
    pub soname: Option<String>,
    /// Identifies the image and its debug file.
    pub build_id: Option<Vec<u8>>,
    /// The debug file's name and check sum.
    pub debug_link: Option<DebugLink>,
}

const CLASS: usize = 4;
const DATA: usize = 5;
const TYPE: usize = 16;
const MACHINE: usize = 18;

impl Header {
    /// Fails for files that cannot be traced.
    pub(crate) fn identify(bytes: &[u8]) -> Result<(Class, Machine), Error> {
        let start: &[u8; 20] = bytes.first_chunk().ok_or(Error::NotElf)?;
        if !start.starts_with(b"\x7fELF") {
            return Err(Error::NotElf);
        }
        let half = |at| match start[DATA] {
            2 => u16::from_be_bytes([start[at], start[at + 1]]),
            _ => u16::from_le_bytes([start[at], start[at + 1]]),
        };
        let class_and_machine = match (start[CLASS], half(MACHINE), start[DATA]) {
            (2, 62, 1) => (Class::Elf64, Machine::X86_64),
            (1, 62, 1) => (Class::Elf32, Machine::X86_64),
            (1, 3, 1) => (Class::Elf32, Machine::X86),
            (.., machine, _) => return Err(Error::ArchitectureMismatch { machine }),
        };
        match half(TYPE) {
            2 | 3 => Ok(class_and_machine),
            elf_type => Err(Error::NotLoadable { elf_type }),
        }
    }

    /// Returns whether the image is a program without a dynamic loader.
    pub fn is_static_program(&self) -> bool {
        self.program && self.interpreter.is_none()
    }

    /// Returns why tiptoe cannot inject its library into a process of this image.
    pub fn refusal_in_process(&self) -> Option<&'static str> {
        match (self.machine, self.class) {
            (Machine::X86, _) => Some(kind::X86),
            (Machine::X86_64, Class::Elf32) => Some(kind::X32),
            _ if self.is_static_program() => Some(kind::STATIC),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(class: u8, elf_type: u8, machine: u8) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(b"\x7fELF");
        (bytes[CLASS], bytes[DATA], bytes[TYPE], bytes[MACHINE]) = (class, 1, elf_type, machine);
        bytes
    }

    #[test]
    fn class_machine_and_type_are_identified() {
        let identify =
            |class, elf_type, machine| Header::identify(&start(class, elf_type, machine));
        assert_eq!(identify(2, 3, 62), Ok((Class::Elf64, Machine::X86_64)));
        assert_eq!(identify(1, 2, 3), Ok((Class::Elf32, Machine::X86)));
        assert_eq!(identify(2, 1, 62), Err(Error::NotLoadable { elf_type: 1 }));
        let machine = 183;
        assert_eq!(
            identify(2, 3, 183),
            Err(Error::ArchitectureMismatch { machine })
        );
        assert_eq!(
            Header::identify(b"#!/bin/sh\n and some more text"),
            Err(Error::NotElf)
        );
        assert_eq!(Header::identify(b"\x7fELF"), Err(Error::NotElf));
    }
}
