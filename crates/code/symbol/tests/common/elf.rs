/// Returns a program at addresses from 0 on.
pub fn elf(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = vec![0_u8; 64 + 56];
    file[..4].copy_from_slice(b"\x7fELF");
    file[4..7].copy_from_slice(&[2, 1, 1]);
    file[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    let count = sections.len() as u8 + 2;
    let headers = [64, 0, 56, 0, 1, 0, 64, 0, count, 0, count - 1, 0];
    file[52..64].copy_from_slice(&headers);
    file[64..72].copy_from_slice(&[1, 0, 0, 0, 6, 0, 0, 0]);
    file[64 + 40..64 + 48].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    let (mut table, mut names) = (vec![0_u8; 64], vec![0_u8]);
    let mut add = |file: &mut Vec<u8>, names: &[u8], name: usize, kind: u32, bytes: &[u8]| {
        let mut header = [0_u8; 64];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
        let size = bytes.len() + names.len();
        header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
        file.extend(bytes);
        file.extend(names);
        table.extend(header);
    };
    for (name, bytes) in sections {
        add(&mut file, &[], names.len(), 1, bytes);
        names.extend(name.bytes().chain([0]));
    }
    add(&mut file, &names, 0, 3, &[]);
    let at = file.len() as u64;
    file[40..48].copy_from_slice(&at.to_le_bytes());
    file.extend(table);
    file
}
