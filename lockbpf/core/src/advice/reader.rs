//! Lines to records.

use super::error::{Problem, RecordError};
use super::fields::{self, Edge, Fields, Text, own};
use super::once::Once;
use super::records::{Execution, NONE, Records};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::io::{BufRead, ErrorKind};

/// Longest line that is read, in bytes: a section of half a million accesses.
pub const MAX_LINE: usize = 16 << 20;

/// Reads access records.
///
/// ```
/// let lines = r#"{"run":0,"seq":5,"tid":"1.2","lock":"L","site":"1","reads":["0x10"],"writes":["0x18"]}"#;
/// let records = lockbpf_core::advice::read(lines.as_bytes()).unwrap();
/// assert_eq!(records.sites.text(records.executions[0].site), "1");
/// ```
///
/// # Errors
/// The input cannot be read, or a line is not what the format allows.
pub fn read(input: impl BufRead) -> Result<Records, RecordError> {
    read_gapped(input, |_| false).map(|(records, _)| records)
}

/// As [`read`], of an input that may lack lines, which it knows when all has been read (`has_gaps`): waits for or of sections
/// that are not there are left out then. Returns how many there were, too.
///
/// # Errors
/// As [`read`].
pub fn read_gapped<I: BufRead>(mut input: I, has_gaps: impl FnOnce(&I) -> bool) -> Result<(Records, u64), RecordError> {
    let mut parser = Parser::default();
    let mut partial: Vec<u8> = Vec::new();
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(source) => return Err(RecordError::Read { line: parser.line + 1, source }),
        };
        if buffer.is_empty() {
            parser.take(&partial)?;
            return parser.finish(has_gaps(&input));
        }
        let used = match memchr::memchr(b'\n', buffer) {
            Some(end) => {
                if partial.is_empty() {
                    parser.take(&buffer[..end])?;
                } else {
                    partial.extend_from_slice(&buffer[..end]);
                    parser.take(&partial)?;
                    partial.clear();
                }
                end + 1
            }
            None => {
                partial.extend_from_slice(buffer);
                buffer.len()
            }
        };
        input.consume(used);
        if partial.len() > MAX_LINE {
            return Err(RecordError::Invalid { line: parser.line + 1, problem: Problem::TooLong });
        }
    }
}

type Map<K, V> = HashMap<K, V, RandomState>;

/// Where a section's number comes from: itself, or the table of those that are no numbers.
const NAMED: u64 = 1 << 63;

/// Executions by run and number.
#[derive(Default)]
struct Seqs {
    /// By run: numbers that came ascending, as they mostly do.
    ascending: Vec<Vec<(u64, u32)>>,
    /// The others.
    others: Map<(u32, u64), u32>,
}

impl Seqs {
    /// Whether the number is new.
    fn insert(&mut self, run: u32, seq: u64, execution: u32) -> bool {
        let runs = self.ascending.len().max(run as usize + 1);
        self.ascending.resize_with(runs, Vec::new);
        let ascending = &mut self.ascending[run as usize];
        // The others are lower than what came before them.
        if ascending.last().is_none_or(|&(last, _)| last < seq) {
            ascending.push((seq, execution));
            return true;
        }
        ascending.binary_search_by_key(&seq, |&(seq, _)| seq).is_err()
            && self.others.insert((run, seq), execution).is_none()
    }

    fn find(&self, run: u32, seq: u64) -> Option<u32> {
        let ascending = self.ascending.get(run as usize)?;
        match ascending.binary_search_by_key(&seq, |&(seq, _)| seq) {
            Ok(at) => Some(ascending[at].1),
            Err(_) => self.others.get(&(run, seq)).copied(),
        }
    }
}

#[derive(Default)]
struct Parser {
    /// Lines so far.
    line: u64,
    records: Records,
    by_seq: Seqs,
    named: super::names::Names,
    /// Waits whose sections may still come: the line, the run, and the numbers.
    edges: Vec<(u64, u32, u64, u64)>,
    ways: Once<u32>,
    scratch: Scratch,
}

/// Memory used again for each line.
#[derive(Default)]
struct Scratch {
    reads: Vec<u32>,
    writes: Vec<u32>,
    words: Vec<u32>,
    way: Vec<u32>,
    touches: Vec<(u32, u32, u32)>,
}

impl Parser {
    fn take(&mut self, line: &[u8]) -> Result<(), RecordError> {
        self.line += 1;
        self.parse(line).map_err(|problem| RecordError::Invalid { line: self.line, problem })
    }

    fn parse(&mut self, line: &[u8]) -> Result<(), Problem> {
        match line.iter().find(|b| !b" \t\r".contains(b)) {
            None => return Ok(()),
            Some(b'{') => {}
            // Arrays could pass for fields without names.
            Some(_) => return Err(Problem::NotAnObject),
        }
        let fields = fields::parse(line)?;
        let run = self.records.runs.number(text(fields.run.as_ref(), "run")?, "runs")?;
        match &fields.edge {
            Some(Edge(from, to)) => {
                let (from, to) = (self.seq(&from.0)?, self.seq(&to.0)?);
                self.edges.push((self.line, run, from, to));
                Ok(())
            }
            None => self.execution(run, &fields),
        }
    }

    fn execution(&mut self, run: u32, fields: &Fields<'_>) -> Result<(), Problem> {
        let name = text(fields.seq.as_ref(), "seq")?;
        let seq = self.seq(name)?;
        let next = self.records.executions.len() as u32;
        if next == NONE {
            return Err(Problem::TooMany("executions"));
        }
        if !self.by_seq.insert(run, seq, next) {
            return Err(Problem::Twice { run: self.records.runs.text(run).to_owned(), seq: name.to_owned() });
        }
        let records = &mut self.records;
        let thread = records.threads.number(text(fields.tid.as_ref(), "tid")?, "threads")?;
        let lock = records.locks.number(text(fields.lock.as_ref(), "lock")?, "locks")?;
        let site = records.sites.number(text(fields.site.as_ref(), "site")?, "sites")?;
        let scratch = &mut self.scratch;
        locations(records, fields.reads.as_ref(), "reads", &mut scratch.reads)?;
        locations(records, fields.writes.as_ref(), "writes", &mut scratch.writes)?;
        scratch.words.clear();
        scratch.words.push(scratch.reads.len() as u32);
        scratch.words.extend(scratch.reads.iter().chain(&scratch.writes));
        let sets = records.sets.number(&scratch.words);
        self.remarks(lock, site, fields)?;
        let path = self.path(fields)?;
        let cut = own(&fields.cut).copied().unwrap_or_default();
        self.records.executions.push(Execution { run, thread, lock, site, sets, path, cut });
        Ok(())
    }

    /// What is known beside.
    fn remarks(&mut self, lock: u32, site: u32, fields: &Fields<'_>) -> Result<(), Problem> {
        let records = &mut self.records;
        for (location, readable) in own(&fields.names).into_iter().flatten() {
            if let Some(location) = records.locations.find(location) {
                records.readable.entry(location).or_insert_with(|| readable.as_str().into());
            }
        }
        for told in own(&fields.branches).into_iter().flatten() {
            let place = records.branch_places.number(&told.at.0, "branches")?;
            let branch = records.branches.entry((site, lock)).or_default().entry(place).or_default();
            if let (None, Some(code)) = (branch.code, &told.code) {
                branch.code = Some(records.code.number(&code.0, "places in the code")?);
            }
            branch.taken |= told.taken > 0;
            branch.not_taken |= told.not_taken > 0;
        }
        for call in own(&fields.opaque).into_iter().flatten() {
            let call = records.calls.number(call, "system calls")?;
            *records.opaque.entry((site, lock)).or_default().entry(call).or_default() += 1;
        }
        if let Some(Text(method)) = own(&fields.method) {
            let method = records.methods.number(method, "methods")?;
            *records.requested.entry((method, lock)).or_default().entry(site).or_default() += 1;
        }
        if let Some(Text(address)) = own(&fields.lock_addr) {
            records.lock_addresses.entry(lock).or_insert_with(|| address.as_ref().into());
        }
        Ok(())
    }

    /// The order of accesses, if it is told; what the execution read and wrote is in the scratch memory.
    fn path(&mut self, fields: &Fields<'_>) -> Result<Option<u32>, Problem> {
        let Some(Text(letters)) = &fields.accesses else {
            return if fields.at.is_some() { Err(Problem::NoAccesses("at")) } else { Ok(None) };
        };
        if let Some(wrong) = letters.chars().find(|letter| !matches!(letter, 'r' | 'w')) {
            return Err(Problem::NoAccess(wrong));
        }
        if let Some(at) = &fields.at
            && at.len() != letters.len()
        {
            return Err(Problem::Length { field: "at", has: at.len(), accesses: letters.len() });
        }
        let Scratch { reads, writes, words, way, touches } = &mut self.scratch;
        words.clear();
        way.clear();
        touches.clear();
        let codes = own(&fields.code).filter(|codes| codes.len() == letters.len()).map_or(&[][..], |codes| codes);
        for (i, letter) in (0_u32..).zip(letters.bytes()) {
            way.push(u32::from(letter == b'w'));
            let code = match codes.get(i as usize) {
                Some(Some(code)) => self.records.code.number(&code.0, "places in the code")?,
                _ => NONE,
            };
            if !codes.is_empty() {
                way.push(code);
            }
            let Some(Some(at)) = fields.at.as_ref().and_then(|at| at.get(i as usize)) else { continue };
            // What is in neither set is nobody else's business.
            let Some(location) = self.records.locations.find(&at.0) else { continue };
            if reads.binary_search(&location).is_ok() || writes.binary_search(&location).is_ok() {
                touches.push((location << 1 | u32::from(letter == b'w'), i, code));
            }
        }
        touches.sort_unstable();
        words.extend([letters.len() as u32, self.ways.number(way), u32::from(fields.at.is_some())]);
        for touched in touches.chunk_by(|a, b| a.0 == b.0) {
            if let [(location, first, first_code), ..] = touched
                && let [.., (_, last, last_code)] = touched
            {
                words.extend([location, first, last, first_code, last_code]);
            }
        }
        Ok(Some(self.records.paths.number(words)))
    }

    fn seq(&mut self, text: &str) -> Result<u64, Problem> {
        match text.parse::<u64>() {
            // `+5` and `05` are other names than 5.
            Ok(n) if n < NAMED && (text == "0" || !text.starts_with(['0', '+'])) => Ok(n),
            _ => Ok(NAMED | u64::from(self.named.number(text, "names of sections")?)),
        }
    }

    fn seq_text(&self, seq: u64) -> String {
        if seq & NAMED == 0 { seq.to_string() } else { self.named.text((seq & !NAMED) as u32).to_owned() }
    }

    /// The records, and how many waits were left out because lines are missing.
    fn finish(mut self, has_gaps: bool) -> Result<(Records, u64), RecordError> {
        let mut left_out = 0;
        for &(line, run, from, to) in &self.edges {
            let find = |seq| {
                let no_section =
                    || Problem::NoSection { run: self.records.runs.text(run).to_owned(), seq: self.seq_text(seq) };
                let problem = || RecordError::Invalid { line, problem: no_section() };
                self.by_seq.find(run, seq).ok_or_else(problem)
            };
            match find(from).and_then(|from| Ok((from, find(to)?))) {
                Ok(edge) => self.records.edges.push(edge),
                Err(_) if has_gaps => left_out += 1,
                Err(error) => return Err(error),
            }
        }
        Ok((self.records, left_out))
    }
}

/// Numbers locations, ascending and each once.
fn locations(
    records: &mut Records,
    texts: Option<&Vec<Text<'_>>>,
    field: &'static str,
    to: &mut Vec<u32>,
) -> Result<(), Problem> {
    to.clear();
    for Text(location) in texts.ok_or(Problem::Missing(field))? {
        to.push(records.locations.number(location, "locations")?);
    }
    to.sort_unstable();
    to.dedup();
    Ok(())
}

fn text<'f>(field: Option<&'f Text<'_>>, name: &'static str) -> Result<&'f str, Problem> {
    field.map(|text| &*text.0).ok_or(Problem::Missing(name))
}
