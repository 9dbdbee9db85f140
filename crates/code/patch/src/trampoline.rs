//! The code to which a patch jumps, and where trapped threads resume.

use crate::code::{Code, LinkTarget};
use crate::shape::{Shape, Window};

#[derive(Debug, Default)]
pub(crate) struct Trampoline {
    pub(crate) code: Code,
    /// Where threads resume that trapped at the patch's first byte.
    pub(crate) trapped: usize,
    pub(crate) copy: usize,
    pub(crate) hot: usize,
    pub(crate) repeated: usize,
    pub(crate) heads: Vec<(u8, usize)>,
}

impl Trampoline {
    pub(crate) fn displaced(&mut self, shape: &Shape, window: &Window) {
        let steps = &shape.run[..window.steps];
        self.copy = self.code.len();
        // Copies of compares are as long as the originals.
        self.repeated = shape.repeats.len();
        if self.repeated > 0 {
            self.code.set_unwind_state(0, 0).append(&shape.repeats);
        }
        for step in steps {
            if let Some(&head) = window
                .heads
                .iter()
                .find(|&&h| usize::from(h) == step.offset)
            {
                self.heads.push((head, self.code.len()));
            }
            self.code
                .set_unwind_state(step.offset, 0)
                .append(&step.copy);
        }
        if let Some(last) = steps.last().filter(|step| step.falls_through) {
            self.code.set_unwind_state(last.end(), 0);
            let displaced_end = LinkTarget::Address(shape.displaced_end(window));
            self.code.relative(&[0xe9], displaced_end, &[]);
        }
    }

    pub(crate) fn embed(&mut self, copy: &Trampoline) {
        let base = self.code.len();
        self.code.append(&copy.code);
        self.copy = base + copy.copy;
        self.repeated = copy.repeated;
        let heads = copy.heads.iter();
        self.heads = heads.map(|&(head, at)| (head, base + at)).collect();
    }
}
