//! Unpacks MiniDebugInfo: an xz container with LZMA2 inside. A few bytes may expand to megabytes, so output and
//! window have a limit. Check sums are not compared, because the output may be hostile anyway.

use std::io::Read;

use lzma_rust2::Lzma2Reader;

const HEADER: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const LZMA2: u8 = 0x21;

/// Unpacks a container; `None` if it is damaged, not LZMA2, or exceeds `limit`.
pub(crate) fn unpack(packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut rest = packed.strip_prefix(&HEADER)?;
    let check_size = match rest.get(1)? & 0xf {
        0 => 0,
        kind => 4_usize << ((kind - 1) / 3),
    };
    rest = rest.get(6..)?;
    let mut unpacked = Vec::new();
    while *rest.first()? != 0 {
        rest = block(rest, &mut unpacked, limit)?.get(check_size..)?;
    }
    Some(unpacked)
}

fn block<'p>(bytes: &'p [u8], unpacked: &mut Vec<u8>, limit: usize) -> Option<&'p [u8]> {
    let header_size = (usize::from(*bytes.first()?) + 1) * 4;
    let window = window(bytes.get(1..header_size)?)?.min(limit as u64);
    let data = bytes.get(header_size..)?;
    let room = (limit - unpacked.len()) as u64;
    let mut reader = Lzma2Reader::new(data, u32::try_from(window).ok()?, None);
    let length = (&mut reader).take(room + 1).read_to_end(unpacked).ok()?;
    if length as u64 > room {
        return None;
    }
    let rest = reader.into_inner();
    rest.get((data.len() - rest.len()).wrapping_neg() & 3..)
}

fn window(header: &[u8]) -> Option<u64> {
    let (&flags, mut rest) = header.split_first()?;
    if flags & 0x3f != 0 {
        return None;
    }
    for present in [flags & 0x40, flags & 0x80] {
        if present != 0 {
            rest = rest.get(rest.iter().position(|byte| byte & 0x80 == 0)? + 1..)?;
        }
    }
    match rest {
        [LZMA2, 1, bits @ 0..=39, ..] => Some((2 | u64::from(bits & 1)) << (bits / 2 + 11)),
        [LZMA2, 1, 40, ..] => Some(u64::from(u32::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'Hello, world!' | xz --check=crc32`
    const HELLO: [u8; 68] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0c, 0x48, 0x65, 0x6c,
        0x6c, 0x6f, 0x2c, 0x20, 0x77, 0x6f, 0x72, 0x6c, 0x64, 0x21, 0x00, 0x00, 0x00, 0x00, 0xe6,
        0xc6, 0xe6, 0xeb, 0x00, 0x01, 0x21, 0x0d, 0x75, 0xdc, 0xa8, 0xd2, 0x90, 0x42, 0x99, 0x0d,
        0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
    ];

    #[test]
    fn unpacks_up_to_the_limit() {
        assert_eq!(unpack(&HELLO, 13).as_deref(), Some(&b"Hello, world!"[..]));
        assert_eq!(unpack(&HELLO, 12), None);
    }

    #[test]
    fn damaged_containers_are_refused() {
        assert_eq!(unpack(&[], 100), None);
        assert_eq!(unpack(&HEADER, 100), None);
        for end in 0..44 {
            assert_eq!(unpack(&HELLO[..end], 100), None, "{end}");
        }
    }
}
