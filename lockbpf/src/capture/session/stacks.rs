//! Stacks that the kernel side copies: fetched, unwound elsewhere, and told to the kernel side, which recognises them from then on.

use super::Session;
use crate::capture::CaptureError;
use crate::capture::stack_copies::{Numbered, StackCopies};
use crate::id::{Process, StackId};
use crate::unwind::{Decision, StackCopy, Unwound};
use lockbpf_common::python::{Interpreter, PythonFrame};

impl Session {
    /// The stacks copied so far that were not fetched before. The programs may copy `more` until the next call. Call after [`Session::drain`], and every record handed over
    /// then has its stack among these or earlier ones.
    ///
    /// # Errors
    /// When a map cannot be accessed.
    pub fn fetch_stacks(&mut self, more: u64) -> Result<Vec<StackCopy>, CaptureError> {
        self.stack_copies.as_mut().map_or(Ok(Vec::new()), |copies| copies.fetch(&mut self.ebpf, more))
    }

    /// The places in Python functions where locks were asked for that were not told before.
    pub fn python_places(&mut self) -> Vec<(Process, PythonFrame)> {
        self.stack_copies.as_mut().map(StackCopies::python_places).unwrap_or_default()
    }

    /// Takes note of the result of unwinding a copied stack; reports show the addresses `told`.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn settle_stack(&mut self, copy: &StackCopy, unwound: &Unwound, told: Vec<u64>) -> Result<(), CaptureError> {
        self.stack_copies.as_mut().map_or(Ok(()), |copies| copies.settle(&mut self.ebpf, copy, unwound, told))
    }

    /// The number of a stack of which only these calls are known, innermost first; `None` without stacks, or if they are too many.
    pub fn number_stack(&mut self, process: Process, calls: Vec<u64>) -> Option<StackId> {
        self.stack_copies.as_mut()?.number_calls(process, calls)
    }

    /// Takes the stacks of a process in this way from now on.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn decide(&mut self, process: Process, decision: Decision) -> Result<(), CaptureError> {
        self.stack_copies.as_ref().map_or(Ok(()), |copies| copies.decide(&mut self.ebpf, process, decision))
    }

    /// Takes the stacks of a process with the Python functions that its threads are in, if stacks are copied. Returns whether they are.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn read_python(&mut self, process: Process, python: Interpreter) -> Result<bool, CaptureError> {
        let Some(copies) = &mut self.stack_copies else { return Ok(false) };
        copies.read_python(&mut self.ebpf, process, python)?;
        Ok(true)
    }

    /// Has the stacks of a process copied in which a machine makes code while it runs: a wait that is recorded is of little use without its stack there.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn generates_code(&mut self, process: Process) -> Result<(), CaptureError> {
        self.stack_copies.as_mut().map_or(Ok(()), |copies| copies.generates_code(&mut self.ebpf, process))
    }

    /// What the number of a stack in a record stands for.
    #[must_use]
    pub fn numbered(&self, id: StackId) -> Numbered {
        self.stack_copies.as_ref().map_or(Numbered::Known(Some(id)), |copies| copies.number(id))
    }
}
