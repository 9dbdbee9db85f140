//! The word that tiptoe holds as a robust futex while tiptoe lives.

const OWNER_DIED: u32 = 0x4000_0000;
const OWNER_TID: u32 = 0x3fff_ffff;

pub fn is_owned(word: u32) -> bool {
    word & OWNER_DIED == 0 && word & OWNER_TID != 0
}
