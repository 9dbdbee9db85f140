//! The unwind information of return thunks (stubs to which probed calls return), as `.eh_frame_hdr` and `.eh_frame`.

/// The most unwinders in one process: libgcc's, and those that objects carry.
pub const UNWINDERS: usize = 24;

/// `_Unwind_GetIP`.
pub type AddressOf = unsafe extern "C" fn(*mut u8) -> u64;

/// The length of the unwind information. Its last 4 bytes end `.eh_frame`.
pub const INFO: usize = HDR + CIE + FDE + 4;
const HDR: usize = 20;
const CIE: usize = 20;
const FDE: usize = 100;

/// Returns the unwind information, to be placed at `at`. A thunk's record is `record_distance` bytes after the thunk.
///
/// An instruction's address without its low five bits is the thunk's address. The first word of the thunk's record is
/// the true return address. A thunk's frame has only the words of [`PUSHED`].
///
/// The last thunk and the frame to which it returns must not have the same canonical frame address (CFA;
/// `tiptoe_uprobe::thunks`). So the last thunk's CFA is lower by 8 bytes. This difference is the high half of the
/// record's last word.
pub fn info(at: u64, code: u64, len: u64, record_distance: i32) -> [u8; INFO] {
    const RETURN_ADDRESS: u8 = 16;
    let mut bytes = Bytes {
        all: [0; INFO],
        len: 0,
    };
    let (cie, fde) = (at + HDR as u64, at + (HDR + CIE) as u64);
    // .eh_frame_hdr: version, encodings (pcrel, udata4, datarel), .eh_frame, the table.
    bytes
        .put(&[1, 0x1b, 0x03, 0x3b])
        .relative(cie, at + 4)
        .word(1);
    bytes.relative(code, at).relative(fde, at);
    // CIE: version 1, "zR", factors 1 and -8, pcrel addresses.
    bytes
        .word(CIE as u32 - 4)
        .word(0)
        .put(b"\x01zR\0\x01\x78")
        .put(&[RETURN_ADDRESS, 1, 0x1b, 0, 0, 0]);
    bytes.word(FDE as u32 - 4).word((fde + 4 - cie) as u32);
    bytes.relative(code, fde + 8).word(len as u32).put(&[0]);
    // def_cfa_expression: the caller's stack pointer, minus the record's last word shr 32.
    bytes
        .put(&[0x0f, 39])
        .stack_pointer()
        .record(record_distance + 24);
    bytes.put(&[0x06, 0x08, 32, 0x25, 0x1c]);
    // val_expression of %rsp.
    bytes.put(&[0x16, 7, 23]).stack_pointer();
    // expression of the return address: the record's first word.
    bytes
        .put(&[0x10, RETURN_ADDRESS, 11])
        .record(record_distance);
    bytes.all
}

/// The number of words that a thunk has on the stack, in three bits for each byte of its code. At first these are the
/// return address and the words that the probe's generated code pushed. Each `pop` removes one; at the end the return
/// address is there again.
const PUSHED: u64 = 4 | 3 << 3 | 2 << 6 | 1 << 9 | 1 << 60;

struct Bytes {
    all: [u8; INFO],
    len: usize,
}

impl Bytes {
    fn put(&mut self, bytes: &[u8]) -> &mut Bytes {
        let room = self.all.iter_mut().skip(self.len);
        room.zip(bytes).for_each(|(to, byte)| *to = *byte);
        self.len += bytes.len();
        self
    }

    /// Puts operations that push the address of a word of the thunk's record: breg16(0) const1s(-32) and
    /// const4s(record_distance) plus. Register 16 is the code address.
    fn record(&mut self, record_distance: i32) -> &mut Bytes {
        self.put(&[0x80, 0, 0x09, 0xe0, 0x1a, 0x0d]);
        self.word(record_distance as u32).put(&[0x22])
    }

    /// Puts operations that push the caller's stack pointer: breg7(0) const8u(PUSHED) breg16(0) lit31 and lit3 mul shr
    /// lit7 and lit3 shl plus.
    fn stack_pointer(&mut self) -> &mut Bytes {
        self.put(&[0x77, 0, 0x0e]).put(&PUSHED.to_le_bytes());
        self.put(&[0x80, 0, 0x4f, 0x1a, 0x33, 0x1e, 0x25]);
        self.put(&[0x37, 0x1a, 0x33, 0x24, 0x22])
    }

    fn word(&mut self, word: u32) -> &mut Bytes {
        self.put(&word.to_le_bytes())
    }

    fn relative(&mut self, to: u64, from: u64) -> &mut Bytes {
        self.word(to.wrapping_sub(from) as u32)
    }
}
