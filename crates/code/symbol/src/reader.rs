//! A section of a file. Only a part (*window*) is in memory, because debug information may exceed tiptoe's memory; but
//! a compressed section is unpacked whole. The file may change between two reads, so the bytes of each read must be
//! checked anew.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use gimli::{Error, LittleEndian, Reader, ReaderOffsetId};
use object::read::{CompressionFormat, Object as _, ObjectSection as _};

use crate::budget::ReadBudget;
use crate::content::Content;

/// A compressed section may unpack to this many times its size, plus [`MAX_MORE`].
const MAX_RATIO: u64 = 32;
const MAX_MORE: u64 = 16 << 20;
const WINDOW: usize = 16 << 10;
/// The longest section. A search may read the whole section.
const MOST: u64 = 1 << 30;
const MOST_AT_ONCE: usize = 1 << 20;
/// How many bytes of a string are read first.
const STRING: usize = 128;

/// A section; empty if the file lacks it.
#[derive(Debug)]
pub(crate) struct Section<'d> {
    bytes: Bytes<'d>,
    len: usize,
    /// The budget that pays for reads, and the price of a read.
    budget: Option<(Rc<ReadBudget>, usize)>,
}

#[derive(Debug)]
enum Bytes<'d> {
    InMemory(Cow<'d, [u8]>),
    InFile {
        content: &'d Content,
        start: u64,
        window: RefCell<Window>,
    },
}

#[derive(Debug, Default)]
struct Window {
    at: usize,
    bytes: Vec<u8>,
}

impl Default for Section<'_> {
    fn default() -> Self {
        Section::from_bytes(Cow::Borrowed(&[]))
    }
}

impl<'d> Section<'d> {
    pub(crate) fn of(
        file: &object::read::File<'d, &'d Content>,
        content: &'d Content,
        name: &str,
    ) -> Section<'d> {
        let plain = || {
            let range = file
                .section_by_name(name)?
                .compressed_file_range()
                .ok()
                .filter(|range| range.format == CompressionFormat::None)?;
            Some((range.offset, range.uncompressed_size))
        };
        let Some((start, size)) = plain() else {
            return Section::from_bytes(unpacked(file, content, name).unwrap_or_default());
        };
        let end = start.checked_add(size);
        if size > MOST || end.is_none_or(|end| end > content.size()) {
            content.leave_out();
            return Section::default();
        }
        Section {
            bytes: Bytes::InFile {
                content,
                start,
                window: RefCell::default(),
            },
            len: size as usize,
            budget: None,
        }
    }

    /// Makes a budget pay for each read, and enlarges the budget by the section's bytes. Once the budget is exceeded,
    /// reads fail.
    pub(crate) fn paid_by(self, budget: &Rc<ReadBudget>, price: usize) -> Section<'d> {
        budget.add(self.len as u64);
        let budget = Some((Rc::clone(budget), price));
        Section { budget, ..self }
    }

    fn from_bytes(bytes: Cow<'d, [u8]>) -> Section<'d> {
        Section {
            len: bytes.len(),
            bytes: Bytes::InMemory(bytes),
            budget: None,
        }
    }

    fn read(&self, at: usize, piece: &mut [u8]) -> Option<()> {
        let end = at.checked_add(piece.len()).filter(|end| *end <= self.len)?;
        if let Some((budget, price)) = &self.budget {
            budget.pay(*price).ok()?;
            budget.pay_bytes(piece.len()).ok()?;
        }
        let (content, start, window) = match &self.bytes {
            Bytes::InMemory(bytes) => {
                piece.copy_from_slice(&bytes[at..end]);
                return Some(());
            }
            Bytes::InFile {
                content,
                start,
                window,
            } => (content, start, window),
        };
        if piece.len() >= WINDOW {
            return content.fill(start + at as u64, piece);
        }
        let mut window = window.borrow_mut();
        let is_there = window.at <= at && end <= window.at + window.bytes.len();
        if !is_there {
            window.at = at;
            window.bytes.resize(WINDOW.min(self.len - at), 0);
            if content.fill(start + at as u64, &mut window.bytes).is_none() {
                window.bytes.clear();
                return None;
            }
        }
        let from = at - window.at;
        piece.copy_from_slice(&window.bytes[from..from + piece.len()]);
        Some(())
    }

    pub(crate) fn string(&self, at: usize, most: usize) -> Option<Vec<u8>> {
        let most = most.min(self.len.checked_sub(at)?);
        let mut string = Vec::new();
        for len in [most.min(STRING), most] {
            string.resize(len, 0);
            self.read(at, &mut string)?;
            if let Some(end) = string.iter().position(|byte| *byte == 0) {
                string.truncate(end);
                break;
            }
        }
        Some(string)
    }

    pub(crate) fn each_part(&self, mut show: impl FnMut(&[u8])) {
        if let Bytes::InMemory(bytes) = &self.bytes {
            return show(bytes);
        }
        let mut part = vec![0; WINDOW];
        for at in (0..self.len).step_by(WINDOW) {
            part.truncate(self.len - at);
            if self.read(at, &mut part).is_none() {
                return;
            }
            show(&part);
        }
    }
}

pub(crate) fn unpacked<'d>(
    file: &object::read::File<'d, &'d Content>,
    content: &Content,
    name: &str,
) -> Option<Cow<'d, [u8]>> {
    let packed = file.section_by_name(name)?.compressed_data().ok()?;
    if packed.format != CompressionFormat::None {
        let most = (packed.data.len() as u64).saturating_mul(MAX_RATIO) + MAX_MORE;
        // A claimed size above the limit must fail, so more than any budget is charged.
        let claimed = packed.uncompressed_size;
        content.spend(if claimed <= most { claimed } else { u64::MAX })?;
    }
    packed.decompress().ok()
}

#[derive(Clone, Debug)]
pub(crate) struct SectionPart<'d> {
    section: Rc<Section<'d>>,
    /// The section's number, unique in a lookup.
    number: u16,
    start: usize,
    len: usize,
}

impl<'d> SectionPart<'d> {
    pub(crate) fn all(section: Section<'d>, number: u16) -> SectionPart<'d> {
        SectionPart {
            len: section.len,
            section: Rc::new(section),
            number,
            start: 0,
        }
    }

    fn must_have(&self, len: usize) -> gimli::Result<()> {
        match len <= self.len {
            true => Ok(()),
            false => Err(Error::UnexpectedEof(self.offset_id())),
        }
    }
}

/// A reader's id has the offset in this many low bits, and the section's number in the higher bits.
const NUMBER: u32 = 48;

impl Reader for SectionPart<'_> {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.len
    }

    fn empty(&mut self) {
        self.len = 0;
    }

    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.must_have(len)?;
        self.len = len;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.start.saturating_sub(base.start)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(u64::from(self.number) << NUMBER | self.start as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let own = u64::from(self.number) << NUMBER | self.start as u64;
        let offset = usize::try_from(id.0.checked_sub(own)?).ok()?;
        (offset <= self.len).then_some(offset)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let mut some = [0; STRING];
        for at in (0..self.len).step_by(STRING) {
            let some = &mut some[..STRING.min(self.len - at)];
            self.section.read(self.start + at, some).ok_or(Error::Io)?;
            if let Some(found) = some.iter().position(|one| *one == byte) {
                return Ok(at + found);
            }
        }
        Err(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.must_have(len)?;
        self.start += len;
        self.len -= len;
        Ok(())
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.must_have(len)?;
        let first = SectionPart {
            len,
            ..self.clone()
        };
        self.skip(len)?;
        Ok(first)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        if self.len > MOST_AT_ONCE {
            return Err(Error::Io);
        }
        let mut bytes = vec![0; self.len];
        self.section.read(self.start, &mut bytes).ok_or(Error::Io)?;
        Ok(Cow::Owned(bytes))
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        let bytes = self.to_slice()?.into_owned();
        let text = String::from_utf8(bytes).map_err(|_| Error::BadUtf8)?;
        Ok(Cow::Owned(text))
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        let bytes = self.to_slice()?;
        Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn read_slice(&mut self, piece: &mut [u8]) -> gimli::Result<()> {
        self.must_have(piece.len())?;
        self.section.read(self.start, piece).ok_or(Error::Io)?;
        self.skip(piece.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(section: Section<'_>, bytes: &[u8]) {
        let mut all = Vec::new();
        section.each_part(|part| all.extend_from_slice(part));
        assert_eq!(all, bytes);
        assert_eq!(section.string(3, 2).as_deref(), Some(&bytes[3..5]));
        let mut part = SectionPart::all(section, 7);
        let whole = part.clone();
        for at in [0, 1, WINDOW - 1, WINDOW, 5, 2 * WINDOW + 7, 0] {
            let mut there = whole.clone();
            there.skip(at).unwrap();
            assert_eq!(there.offset_from(&whole), at);
            assert_eq!(whole.lookup_offset_id(there.offset_id()), Some(at));
            let mut piece = [0; 9];
            there.read_slice(&mut piece).unwrap();
            assert_eq!(piece, bytes[at..at + 9]);
        }
        let first = part.split(WINDOW + 3).unwrap();
        assert_eq!(*first.to_slice().unwrap(), bytes[..WINDOW + 3]);
        assert_eq!(part.read_u8(), Ok(bytes[WINDOW + 3]));
        assert!(part.skip(bytes.len()).is_err() && part.split(bytes.len()).is_err());
        let zero = bytes.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(whole.find(0), Ok(zero));
        part.empty();
        assert!(part.read_u8().is_err() && part.find(0).is_err());
    }

    #[test]
    fn a_window_shows_what_the_whole_section_has() {
        let bytes: Vec<u8> = (0..3 * WINDOW + 100)
            .map(|at| (at % 251 + 1) as u8)
            .collect();
        let mut bytes = bytes;
        bytes[2 * WINDOW + 50] = 0;
        let content = Content::from([&[9; 33][..], &bytes].concat());
        check(Section::from_bytes(Cow::Borrowed(&bytes)), &bytes);
        let in_file = Section {
            bytes: Bytes::InFile {
                content: &content,
                start: 33,
                window: RefCell::default(),
            },
            len: bytes.len(),
            budget: None,
        };
        check(in_file, &bytes);
    }
}
