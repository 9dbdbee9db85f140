//! Writes debug information by hand, entry by entry.

pub mod dw {
    pub const COMPILE_UNIT: u8 = 0x11;
    pub const VARIABLE: u8 = 0x34;
    pub const MEMBER: u8 = 0x0d;
    pub const STRUCTURE: u8 = 0x13;
    pub const TYPEDEF: u8 = 0x16;
    pub const POINTER: u8 = 0x0f;
    pub const ARRAY: u8 = 0x01;
    pub const NAME: u8 = 0x03;
    pub const TYPE: u8 = 0x49;
    pub const LOCATION: u8 = 0x02;
    pub const SIZE: u8 = 0x0b;
    pub const SPECIFICATION: u8 = 0x47;
    pub const PLACE: u8 = 0x38;
    pub const REF4: u8 = 0x13;
    pub const STRING: u8 = 0x08;
    pub const STRP: u8 = 0x0e;
    pub const DATA1: u8 = 0x0b;
    pub const EXPRLOC: u8 = 0x18;
    pub const PRESENT: u8 = 0x19;
    pub const FUNCTION: u8 = 0x2e;
    pub const PARAMETER: u8 = 0x05;
    pub const INLINED: u8 = 0x1d;
    pub const LOW_PC: u8 = 0x11;
    pub const ORIGIN: u8 = 0x31;
    pub const ADDRESS: u8 = 0x01;
    pub const RANGES: u8 = 0x55;
    pub const LINES: u8 = 0x10;
    pub const OFFSET: u8 = 0x17;
}

pub struct Dwarf {
    info: Vec<u8>,
    abbrev: Vec<u8>,
    codes: u8,
}

impl Dwarf {
    pub fn new() -> Dwarf {
        Dwarf::with_root(&[], &[])
    }

    pub fn with_root(attributes: &[(u8, u8)], values: &[u8]) -> Dwarf {
        let mut dwarf = Dwarf {
            info: vec![0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8],
            abbrev: Vec::new(),
            codes: 0,
        };
        let root = dwarf.kind(dw::COMPILE_UNIT, true, attributes);
        dwarf.entry(root, &[values]);
        dwarf
    }

    pub fn kind(&mut self, tag: u8, children: bool, attributes: &[(u8, u8)]) -> u8 {
        self.codes += 1;
        self.abbrev.extend([self.codes, tag, u8::from(children)]);
        for (name, form) in attributes {
            self.abbrev.extend([*name, *form]);
        }
        self.abbrev.extend([0, 0]);
        self.codes
    }

    pub fn here(&self) -> u32 {
        self.info.len() as u32
    }

    pub fn entry(&mut self, code: u8, parts: &[&[u8]]) -> u32 {
        let at = self.here();
        self.info.push(code);
        parts.iter().for_each(|part| self.info.extend(*part));
        at
    }

    pub fn end(&mut self) {
        self.info.push(0);
    }

    pub fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.end();
        let length = (self.info.len() - 4) as u32;
        self.info[..4].copy_from_slice(&length.to_le_bytes());
        self.abbrev.push(0);
        (self.info, self.abbrev)
    }
}
