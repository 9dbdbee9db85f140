//! Events of a machine's own PMUs. Each PMU has a folder in /sys/bus/event_source/devices, with its number, its
//! events, and the bits of each term (a field such as `umask`).

use std::fs;
use std::path::{Path, PathBuf};

use tiptoe_event::counter::nearest_of;
use tiptoe_event::number;
use tiptoe_sys::host::perf::{self, Attr};

use crate::{CounterRefusal, Error};

const DEVICES: &str = "/sys/bus/event_source/devices";
/// The terms of a named event must not name another event, so names nest one level deep.
const DEEPEST: usize = 1;
const MOST_NAMED: usize = 12;

#[derive(Debug)]
pub(super) struct Pmu {
    name: String,
    folder: PathBuf,
    number: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) attr: Attr,
    words: [u64; 3],
    pub(super) scale: f64,
    pub(super) unit: String,
    pub(super) cpus: Option<Vec<u32>>,
}

impl Pmu {
    pub(super) fn find(name: &str) -> Result<Pmu, Error> {
        Pmu::find_in(Path::new(DEVICES), name)
    }

    fn find_in(devices: &Path, name: &str) -> Result<Pmu, Error> {
        let folder = devices.join(name);
        let number = read(&folder.join("type")).and_then(|text| text.parse().ok());
        let Some(number) = number else {
            let (name, known) = (name.to_owned(), names(devices));
            return Err(CounterRefusal::NoPmu { name, known }.into());
        };
        Ok(Pmu {
            name: name.to_owned(),
            folder,
            number,
        })
    }

    pub(super) fn terms(&self, terms: &str) -> Result<Terms, Error> {
        let mut found = Terms {
            attr: perf::attr(self.number, 0),
            words: [0; 3],
            scale: 1.0,
            unit: String::new(),
            cpus: read(&self.folder.join("cpumask")).and_then(|text| ranges(&text)),
        };
        self.read_terms(terms, &mut found, 0)?;
        let [config, config1, config2] = found.words;
        found.attr.config = config;
        found.attr.__bindgen_anon_3.config1 = config1;
        found.attr.__bindgen_anon_4.config2 = config2;
        Ok(found)
    }

    fn read_terms(&self, terms: &str, found: &mut Terms, depth: usize) -> Result<(), Error> {
        for term in terms.split(',').map(str::trim) {
            let (field, value) = match term.split_once('=') {
                Some((field, value)) => (field, Some(value)),
                None => (term, None),
            };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if field.is_empty() || field.starts_with('.') || !field.chars().all(is_plain) {
                return Err(self.unknown(term));
            }
            let event = self.folder.join("events").join(field);
            match (read(&event), value) {
                (Some(own), None) if depth < DEEPEST => {
                    self.read_terms(&own, found, depth + 1)?;
                    let beside = |end: &str| read(&event.with_file_name(format!("{field}.{end}")));
                    found.scale = beside("scale").and_then(|s| s.parse().ok()).unwrap_or(1.0);
                    found.unit = beside("unit").unwrap_or_default();
                }
                _ if field == "name" && value.is_some() => {}
                _ => self.set(term, field, value, &mut found.words)?,
            }
        }
        Ok(())
    }

    fn set(
        &self,
        term: &str,
        field: &str,
        value: Option<&str>,
        words: &mut [u64; 3],
    ) -> Result<(), Error> {
        let value = value.map_or(Some(1), number);
        let value = value.ok_or_else(|| CounterRefusal::NoNumber {
            pmu: self.name.clone(),
            term: term.to_owned(),
        })?;
        let whole = match field {
            "config" | "config1" | "config2" => Some(format!("{field}:0-63")),
            _ => None,
        };
        let format = whole.or_else(|| read(&self.folder.join("format").join(field)));
        let format = format.ok_or_else(|| self.unknown(term))?;
        let laid = lay(&format, value).ok_or_else(|| CounterRefusal::TooLarge {
            pmu: self.name.clone(),
            term: term.to_owned(),
            field: field.to_owned(),
            format,
        })?;
        let (word, bits) = laid;
        words[word] |= bits;
        Ok(())
    }

    fn unknown(&self, term: &str) -> Error {
        let mut known = names(&self.folder.join("events"));
        known.retain(|name| !name.contains('.'));
        known.extend(names(&self.folder.join("format")));
        let near = nearest_of(term, known.iter().map(String::as_str));
        let near = near.into_iter().flatten().map(str::to_owned).collect();
        known.truncate(MOST_NAMED);
        let refusal = CounterRefusal::NoTerm {
            pmu: self.name.clone(),
            term: term.to_owned(),
            near,
            known,
        };
        refusal.into()
    }
}

/// Returns the index of the word that a format like `config:0-7,32-35` names, and `value` in its bits; `None` if the
/// value does not fit.
fn lay(format: &str, value: u64) -> Option<(usize, u64)> {
    let (word, bits) = format.split_once(':')?;
    let word = ["config", "config1", "config2"]
        .iter()
        .position(|known| *known == word)?;
    let (mut laid, mut rest) = (0, value);
    for range in bits.split(',') {
        let (low, high) = bounds(range)?;
        if low > high || high >= u64::BITS {
            return None;
        }
        let mask = u64::MAX >> (u64::BITS - 1 - (high - low));
        laid |= (rest & mask) << low;
        rest = rest.checked_shr(high - low + 1).unwrap_or(0);
    }
    (rest == 0).then_some((word, laid))
}

/// Parses `0-3,8`.
fn ranges(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for range in text.split(',') {
        let (low, high) = bounds(range)?;
        all.extend(low..=high);
    }
    Some(all)
}

fn bounds(range: &str) -> Option<(u32, u32)> {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> PathBuf {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        // Relaxed: the numbers must only differ.
        static TURN: AtomicU32 = AtomicU32::new(0);
        let turn = TURN.fetch_add(1, Relaxed);
        let root = std::env::temp_dir().join(format!("tiptoe-pmu-{}-{turn}", std::process::id()));
        for (file, text) in [
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7,32-35\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/offcore_rsp", "config1:0-63\n"),
            ("cpu/format/edge", "config:18\n"),
            ("cpu/events/cpu-cycles", "event=0x3c\n"),
            ("cpu/events/energy", "event=0x02,umask=1\n"),
            ("cpu/events/energy.scale", "2.5e-1\n"),
            ("cpu/events/energy.unit", "Joules\n"),
            ("cpu/cpumask", "0,4-5\n"),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn terms_use_the_bits_that_the_kernel_names() {
        let root = machine();
        let pmu = Pmu::find_in(&root, "cpu").unwrap();
        for (terms, words) in [
            ("event=0x3c", [0x3c, 0, 0]),
            ("event=0x3c,umask=0x41", [0x413c, 0, 0]),
            ("event=0x1ff", [0x1_0000_00ff, 0, 0]),
            ("cpu-cycles", [0x3c, 0, 0]),
            ("cpu-cycles,edge", [0x4_003c, 0, 0]),
            ("event=60,edge=0,name=x", [0x3c, 0, 0]),
            ("config=0x77,config1=3", [0x77, 3, 0]),
            (
                "event=0xb7,offcore_rsp=0xffffffffffffffff",
                [0xb7, u64::MAX, 0],
            ),
        ] {
            let found = pmu.terms(terms).expect(terms);
            assert_eq!(found.words, words, "{terms}");
            assert_eq!((found.attr.type_, found.attr.config), (4, words[0]));
            assert_eq!(found.cpus, Some(vec![0, 4, 5]));
        }
        let energy = pmu.terms("energy").unwrap();
        assert_eq!((energy.scale, energy.unit.as_str()), (0.25, "Joules"));
        for (terms, message) in [
            ("evnt=1", "the PMU 'cpu' has no term 'evnt=1'"),
            ("event=x", "not a number"),
            ("event=-1", "not a number"),
            ("event=0x1fff", "does not fit"),
            ("edge=2", "does not fit"),
            ("../../type", "no term"),
            ("event=1,,umask=1", "no term ''"),
        ] {
            let error = pmu.terms(terms).expect_err(terms).to_string();
            assert!(error.contains(message), "{terms}: {error}");
        }
        let error = Pmu::find_in(&root, "gpu").unwrap_err();
        assert_eq!(error.to_string(), "this machine has no PMU 'gpu'");
        assert_eq!(error.hint().as_deref(), Some("this machine has cpu"));
        fs::remove_dir_all(&root).unwrap();
    }
}
