//! Decides by the decoder, not by the planner's list, whether a patched head traps.

use iced_x86::{Decoder, DecoderOptions};
use tiptoe_patch::Patch;

/// Returns whether the patch has no instruction at `offset`, whatever byte follows the patch.
pub fn traps_at(patch: &Patch, offset: u8) -> bool {
    let written = &patch.patched[usize::from(offset)..usize::from(patch.len)];
    (0..=u8::MAX).all(|next| {
        let bytes = [written, &[next; 15]].concat();
        let mut decoder = Decoder::new(64, &bytes, DecoderOptions::NONE);
        decoder.decode().is_invalid()
    })
}
