//! Nodes of the map tree on flash: their locations, and which have changed since they were written.
//!
//! Map nodes are numbered first, then log nodes. Only a checkpoint writes nodes, and an old node is released only when
//! a root that no longer needs it is durable. So garbage collection never moves a node, but marks it changed (see
//! gc.rs).

use crate::format::{FANOUT, NO_SLOT};
use vellum_base::SlotAddr;

/// All nodes; see the module.
pub(crate) struct Nodes {
    map_nodes: u32,
    slots: Vec<u32>,
    directories: Vec<u32>,
    changed: Vec<bool>,
    directory_changed: Vec<bool>,
}

impl Nodes {
    /// No nodes on flash yet.
    pub(crate) fn new(sectors: u64) -> Nodes {
        let map_nodes = sectors.div_ceil(FANOUT as u64) as u32;
        let mut nodes = Nodes {
            map_nodes,
            slots: Vec::new(),
            directories: Vec::new(),
            changed: Vec::new(),
            directory_changed: Vec::new(),
        };
        nodes.grow(map_nodes);
        nodes
    }

    fn grow(&mut self, nodes: u32) {
        if self.slots.len() < nodes as usize {
            self.slots.resize(nodes as usize, NO_SLOT);
            self.changed.resize(nodes as usize, false);
            let directories = (nodes as usize).div_ceil(FANOUT);
            self.directories.resize(directories, NO_SLOT);
            self.directory_changed.resize(directories, false);
        }
    }

    pub(crate) fn map_nodes(&self) -> u32 {
        self.map_nodes
    }
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }
    /// The number of the log node that lists `log`.
    pub(crate) fn of_log(&self, log: u32) -> u32 {
        self.map_nodes + log / FANOUT as u32
    }
    pub(crate) fn slot(&self, node: u32) -> Option<SlotAddr> {
        self.slots.get(node as usize).filter(|s| **s != NO_SLOT).map(|s| SlotAddr(*s))
    }
    pub(crate) fn directory(&self, directory: u32) -> Option<SlotAddr> {
        self.directories.get(directory as usize).filter(|s| **s != NO_SLOT).map(|s| SlotAddr(*s))
    }
    pub(crate) fn directories(&self) -> &[u32] {
        &self.directories
    }
    /// The slots of the nodes listed by directory `directory`.
    pub(crate) fn listed_in(&self, directory: u32) -> &[u32] {
        let from = directory as usize * FANOUT;
        &self.slots[from..(from + FANOUT).min(self.slots.len())]
    }

    /// Marks the node of a sector whose place changed.
    #[inline]
    pub(crate) fn mark_sector(&mut self, sector: u32) {
        self.mark(sector / FANOUT as u32);
    }

    /// Marks the node of a log slot that was stored, moved or released.
    pub(crate) fn mark_log(&mut self, log: u32) {
        let node = self.of_log(log);
        self.grow(node + 1);
        self.mark(node);
    }

    #[inline]
    pub(crate) fn mark(&mut self, node: u32) {
        self.changed[node as usize] = true;
    }

    pub(crate) fn mark_directory(&mut self, directory: u32) {
        self.directory_changed[directory as usize] = true;
    }

    pub(crate) fn changed(&self) -> Vec<u32> {
        (0..self.count()).filter(|n| self.changed[*n as usize]).collect()
    }
    pub(crate) fn changed_directories(&self) -> Vec<u32> {
        (0..self.directories.len() as u32).filter(|d| self.directory_changed[*d as usize]).collect()
    }

    /// Clears the mark of a node that is being written with its current contents; later changes mark it again.
    pub(crate) fn begin_writing(&mut self, node: u32) {
        self.changed[node as usize] = false;
    }

    /// The same for a directory.
    pub(crate) fn begin_writing_directory(&mut self, directory: u32) {
        self.directory_changed[directory as usize] = false;
    }

    /// Records that the node was written to `slot`: returns its old location.
    pub(crate) fn written(&mut self, node: u32, slot: SlotAddr) -> Option<SlotAddr> {
        self.directory_changed[node as usize / FANOUT] = true;
        let old = std::mem::replace(&mut self.slots[node as usize], slot.0);
        (old != NO_SLOT).then_some(SlotAddr(old))
    }

    /// Records that the node was moved unchanged to `slot`.
    pub(crate) fn moved(&mut self, node: u32, slot: SlotAddr) {
        self.slots[node as usize] = slot.0;
        self.directory_changed[node as usize / FANOUT] = true;
    }

    /// Records that the directory was written to `slot`: returns its old location.
    pub(crate) fn directory_written(&mut self, directory: u32, slot: SlotAddr) -> Option<SlotAddr> {
        let old = std::mem::replace(&mut self.directories[directory as usize], slot.0);
        (old != NO_SLOT).then_some(SlotAddr(old))
    }

    /// During loading: adds directory `directory`, which is at `slot` and lists `listed`.
    pub(crate) fn load_directory(&mut self, directory: u32, slot: SlotAddr, listed: &[u32]) {
        let last = listed.iter().rposition(|s| *s != NO_SLOT).map_or(1, |i| i + 1);
        self.grow((directory as usize * FANOUT + last) as u32);
        let from = directory as usize * FANOUT;
        let known = self.slots.len().saturating_sub(from).min(FANOUT);
        self.slots[from..from + known].copy_from_slice(&listed[..known]);
        self.directories[directory as usize] = slot.0;
    }
}
