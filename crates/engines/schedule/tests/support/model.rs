//! A slow model of the scheduler. It stores only each group's state, and recomputes everything at each change.

// The same constants as in the scheduler:
const MEMORY_NS: u64 = 1 << 28;
const CREDIT_NS: u64 = 1 << 22;
const WHOLE: u64 = 1 << 16;
const LEAD: u64 = WHOLE / 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTarget {
    System,
    Label(usize),
    Task(usize),
}

#[derive(Clone, Debug)]
pub struct Group {
    pub target: ModelTarget,
    pub is_pinned: bool,
    pub weight: u32,
    pub is_off: bool,
    pub in_error: bool,
    pub is_running: bool,
    pub is_gone: bool,
    pub enabled_ns: u64,
    pub running_ns: u64,
    /// The enabled and running ns from which the share is computed.
    recent: (u64, u64),
}

#[derive(Clone, Debug)]
pub struct Model {
    pub slots: u32,
    /// The parent of each label but the root.
    pub parents: Vec<usize>,
    pub label: usize,
    pub task: usize,
    pub groups: Vec<Group>,
}

impl Model {
    pub fn depth(&self, label: usize) -> usize {
        if label == 0 {
            0
        } else {
            1 + self.depth(self.parents[label - 1])
        }
    }

    fn is_in(&self, label: usize, outer: usize) -> bool {
        label == outer || (label > 0 && self.is_in(self.parents[label - 1], outer))
    }

    pub fn runs(&self, target: ModelTarget) -> bool {
        match target {
            ModelTarget::System => true,
            ModelTarget::Label(label) => self.is_in(self.label, label),
            ModelTarget::Task(task) => self.task == task,
        }
    }

    pub fn active(&self) -> Vec<usize> {
        let can = |group: &Group| {
            !group.is_off && !group.in_error && !group.is_gone && self.runs(group.target)
        };
        (0..self.groups.len())
            .filter(|at| can(&self.groups[*at]))
            .collect()
    }

    pub fn targets(&self) -> Vec<usize> {
        let runs = |at: &usize| !self.groups[*at].is_gone && self.runs(self.groups[*at].target);
        (0..self.groups.len()).filter(runs).collect()
    }

    pub fn pass(&mut self, ns: u64) {
        for at in self.active() {
            let group = &mut self.groups[at];
            group.enabled_ns += ns;
            group.recent.0 += ns;
            if group.is_running {
                group.running_ns += ns;
                group.recent.1 += ns;
            }
        }
    }

    pub fn add(&mut self, target: ModelTarget, is_pinned: bool, weight: u32) {
        self.groups.push(Group {
            target,
            is_pinned,
            weight,
            is_off: false,
            in_error: false,
            is_running: false,
            is_gone: false,
            enabled_ns: 0,
            running_ns: 0,
            recent: (0, 0),
        });
    }

    pub fn wanted(&self) -> u32 {
        self.active().iter().map(|at| self.groups[*at].weight).sum()
    }

    pub fn running(&self) -> Vec<usize> {
        (0..self.groups.len())
            .filter(|at| self.groups[*at].is_running)
            .collect()
    }

    pub fn settle(&mut self, is_turn: bool) {
        let mut active = self.active();
        for at in 0..self.groups.len() {
            self.groups[at].is_running &= active.contains(&at);
        }
        if self.wanted() <= self.slots {
            for at in active {
                self.groups[at].is_running = true;
            }
            return;
        }
        let mut room = self.slots;
        active.sort_by_key(|at| (!self.groups[*at].is_running, self.level(*at), *at));
        let (pinned, flexible): (Vec<_>, Vec<_>) = active
            .into_iter()
            .partition(|at| self.groups[*at].is_pinned);
        for at in pinned {
            let group = &mut self.groups[at];
            group.is_running = group.weight <= room;
            group.in_error = !group.is_running;
            room -= if group.is_running { group.weight } else { 0 };
        }
        let wanted = flexible
            .iter()
            .map(|at| u64::from(self.groups[*at].weight))
            .sum::<u64>();
        let even = (u64::from(room) * WHOLE)
            .checked_div(wanted)
            .unwrap_or(WHOLE)
            .min(WHOLE);
        let mut keys = Vec::new();
        for at in flexible {
            let share = self.share(at, even);
            let is_running = self.groups[at].is_running;
            let lead = if is_running { LEAD } else { 0 };
            let key = match is_turn {
                true => (share, is_running),
                false => (share.saturating_sub(lead), !is_running),
            };
            keys.push((key, self.level(at), at));
        }
        keys.sort();
        for (_, _, at) in keys {
            let group = &mut self.groups[at];
            group.is_running = group.weight <= room;
            room -= if group.is_running { group.weight } else { 0 };
        }
    }

    fn level(&self, at: usize) -> usize {
        match self.groups[at].target {
            ModelTarget::System => 0,
            ModelTarget::Label(label) => 1 + self.depth(label),
            ModelTarget::Task(_) => usize::MAX,
        }
    }

    fn share(&mut self, at: usize, even: u64) -> u64 {
        let group = &mut self.groups[at];
        while group.recent.0 > MEMORY_NS {
            group.recent.0 -= group.recent.0 / 2;
            group.recent.1 -= group.recent.1 / 2;
        }
        let had = group.recent.1 * WHOLE + CREDIT_NS * even;
        (had / (group.recent.0 + CREDIT_NS)).min(WHOLE)
    }
}
