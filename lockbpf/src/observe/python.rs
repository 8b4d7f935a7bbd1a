//! Python functions on stacks: they are named while their process lives, from its memory.

use crate::capture::python::{Code, Layout};
use crate::id::Process;
use crate::symbol::{Frames, Piece, Symbols};
use lockbpf_common::python::PythonFrame;
use std::collections::HashMap;

/// The processes that run Python and whose functions are read.
#[derive(Default)]
pub(crate) struct Functions(HashMap<Process, (u32, Code)>);

impl Functions {
    /// A process's functions are read from now on.
    pub(crate) fn begin(&mut self, process: Process, pid: u32, layout: &Layout) {
        self.0.insert(process, (pid, Code::of(layout)));
    }

    /// Names the functions of a stack.
    pub(crate) fn name(&mut self, process: Process, frames: &[PythonFrame], symbols: &mut Symbols) {
        let Some((pid, code)) = self.0.get_mut(&process) else { return };
        let named = frames.iter().filter_map(|&frame| {
            let function = code.meet(*pid, frame)?;
            Some(Piece {
                range: frame.instruction..frame.instruction.checked_add(1)?,
                name: function.name,
                frames: Frames::Pointer,
                location: Some((function.file, function.line)),
            })
        });
        symbols.know_generated(process, named);
    }
}
