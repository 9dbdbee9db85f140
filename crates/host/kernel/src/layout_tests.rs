//! Compares tiptoe's types with the structs in the built objects' BTF.

use object::{Object, ObjectSection};

pub(crate) type Layout = (usize, Vec<(String, usize)>);

macro_rules! same_layout {
    ($object:expr, $name:literal, $row:ident $(<$own:ty>)?: $($field:ident)*) => {{
        type Row = $row $(<$own>)?;
        let fields = vec![$((stringify!($field).to_owned(), std::mem::offset_of!(Row, $field))),*];
        let layout = crate::layout_tests::layout($object, $name);
        assert_eq!(layout, (size_of::<Row>(), fields), $name);
    }};
}
pub(crate) use same_layout;

/// Reads a struct's layout: <https://docs.kernel.org/bpf/btf.html>.
pub(crate) fn layout(object: &[u8], wanted: &str) -> Layout {
    let file = object::File::parse(object).expect("ELF");
    let btf = file.section_by_name(".BTF").expect("types");
    let btf = btf.data().expect("bytes");
    let word = |at: usize| u32::from_le_bytes(btf[at..][..4].try_into().expect("four")) as usize;
    let [head, types, types_len, strings] = [4, 8, 12, 16].map(word);
    let name = |at: usize| {
        let text = &btf[head + strings + at..];
        let end = text.iter().position(|byte| *byte == 0).expect("an end");
        String::from_utf8_lossy(&text[..end]).into_owned()
    };
    let mut at = head + types;
    while at < head + types + types_len {
        let (info, size) = (word(at + 4), word(at + 8));
        let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
        let members = at + 12;
        if kind == 4 && name(word(at)) == wanted {
            let member = |at: usize| (name(word(at)), (word(at + 8) & 0xff_ffff) / 8);
            return (size, (0..count).map(|n| member(members + n * 12)).collect());
        }
        at = members
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => count * 12,
                6 | 13 => count * 8,
                _ => 0,
            };
    }
    panic!("no struct {wanted}");
}
