//! Locks that users describe in files (`--locks`, `docs/locks.md`): which functions of which programs get and release them, and where they
//! say what they are. Works on texts alone; any text is a description or a mistake with its line, never a panic.

mod address;
mod file;
mod pattern;
mod waiting;

#[cfg(test)]
mod tests;

use address::{Address, Base};
use file::{Does, Fails, Mistake, Shared, Sort, When};
use lockbpf_common::custom::{self, Introduced, Kind, MAX_FUNCTIONS, MAX_KINDS, Place, does, fails, sort};
pub use pattern::Pattern;
use std::path::Path;
use std::sync::OnceLock;
use toml::Spanned;
pub use waiting::{Waiting, address};

/// Descriptions that lockbpf brings along, by the names by which `--locks` takes them.
pub const SHIPPED: &[(&str, &str)] = &[
    ("openmp", include_str!("../../locks.d/openmp.toml")),
    ("postgresql", include_str!("../../locks.d/postgresql.toml")),
];

/// Names of locks by number in one kind; more are a mistake.
const MAX_NAMES: usize = 65_536;
/// Bytes of a kind's name.
const MAX_KIND: usize = 40;

/// What users have described.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    kinds: Vec<Described>,
    functions: Vec<Function>,
}

/// A kind of lock.
#[derive(Clone, Debug)]
pub struct Described {
    /// What reports call it.
    pub name: String,
    /// Where it is described: the file's name.
    pub origin: String,
    /// What the kernel side has to know.
    pub kernel: Kind,
    /// Where a process says for which of them it waits.
    pub waiting: Option<Waiting>,
    files: Vec<Pattern>,
    inside: Vec<Pattern>,
    names: Vec<String>,
    other: Option<String>,
}

/// Which functions of a file belong to its locks: who calls these is where a lock is asked for or given back.
#[derive(Clone, Debug)]
pub struct Inside(Vec<Pattern>);

impl Inside {
    /// Whether a function does, by its name. One without a name does: it has none since only others of the file call it.
    #[must_use]
    pub fn has(&self, function: Option<&str>) -> bool {
        function.is_none_or(|name| self.0.iter().any(|pattern| pattern.matches(name)))
    }
}

/// A function on locks of a kind.
#[derive(Clone, Debug)]
pub struct Function {
    /// A pattern.
    pub pattern: Pattern,
    /// What the pattern is for.
    pub key: Key,
    /// Number of its kind.
    pub kind: usize,
    /// What the kernel side has to know.
    pub kernel: custom::Function,
    /// Whether it is watched to its return.
    pub is_watched: bool,
    /// How many leading arguments matter.
    pub arguments: usize,
    /// Whether a file without it is as it should be.
    pub is_optional: bool,
    /// Line of its description.
    pub line: usize,
}

/// What tells where a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Key {
    /// Its symbol.
    Symbol,
    /// Its name in C++ or Rust.
    Name,
    /// A point that it has, `provider:name`, which is probed instead of it.
    Point,
}

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct DescriptionError {
    /// The file's name.
    pub file: String,
    /// Line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();

/// What users have described: constant for a run, as the functions are that lockbpf knows by itself. Empty before [`install`].
#[must_use]
pub fn catalogue() -> &'static Catalogue {
    static NONE: Catalogue = Catalogue { kinds: Vec::new(), functions: Vec::new() };
    CATALOGUE.get().unwrap_or(&NONE)
}

/// Makes this the catalogue of the run, unless there is one.
pub fn install(catalogue: Catalogue) {
    // A second observation of the same run is of the same locks.
    let _ = CATALOGUE.set(catalogue);
}

impl Catalogue {
    /// Adds what a file's text describes; `origin` is what messages call the file. Where two descriptions meet in a function, the one added
    /// first counts.
    ///
    /// # Errors
    /// The first mistake; nothing is added then.
    pub fn add(&mut self, text: &str, origin: &str) -> Result<(), DescriptionError> {
        let line = |at: usize| text.bytes().take(at).filter(|&b| b == b'\n').count() + 1;
        let told = |Mistake { span, what }| DescriptionError { file: origin.to_owned(), line: line(span.start), what };
        let mut more = self.clone();
        for lock in file::read(text).map_err(told)?.lock {
            more.add_kind(lock, origin, line).map_err(told)?;
        }
        *self = more;
        Ok(())
    }

    fn add_kind(
        &mut self,
        lock: Spanned<file::Lock>,
        origin: &str,
        line: impl Fn(usize) -> usize,
    ) -> Result<(), Mistake> {
        let span = lock.span();
        let lock = lock.into_inner();
        let number = self.kinds.len();
        if number >= MAX_KINDS as usize {
            return Err(mistake(span, format!("more than {MAX_KINDS} kinds of locks are described")));
        }
        let name = lock.kind.get_ref();
        if name.is_empty() || name.len() > MAX_KIND || name.chars().any(char::is_control) {
            return Err(mistake(
                lock.kind.span(),
                format!("the name of a kind has 1 to {MAX_KIND} bytes, and no control characters"),
            ));
        }
        if lock.files.get_ref().is_empty() || lock.files.get_ref().iter().any(String::is_empty) {
            return Err(mistake(lock.files.span(), "`files` names no program or library".to_owned()));
        }
        let (names, other) = lock.name.as_ref().map_or_else(Default::default, |name| {
            let name = name.get_ref();
            (name.names.clone(), name.other.clone())
        });
        let kernel = kind(&lock)?;
        for function in &lock.function {
            self.functions.push(row(function, number, &kernel, line(function.span().start))?);
        }
        if self.functions.len() > MAX_FUNCTIONS as usize {
            return Err(mistake(span, format!("more than {MAX_FUNCTIONS} functions are described")));
        }
        roles(&lock).map_err(|what| mistake(span, what.to_owned()))?;
        let waiting = lock.waiting.as_ref().map(|waiting| {
            let wrong = |what: &str| mistake(waiting.span(), what.to_owned());
            if kernel.numbered == 0 {
                return Err(wrong("what a process waits for is known by numbers (`identifies = true`)"));
            }
            Waiting::of(waiting.get_ref()).map_err(wrong)
        });
        let waiting = waiting.transpose()?;
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let (files, inside) = (patterns(lock.files.get_ref()), patterns(&lock.inside));
        let (name, origin) = (name.clone(), origin.to_owned());
        self.kinds.push(Described { name, origin, kernel, waiting, files, inside, names, other });
        Ok(())
    }

    /// Whether nothing is described.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The kinds; a kind's number is its place.
    #[must_use]
    pub fn kinds(&self) -> &[Described] {
        &self.kinds
    }

    /// The functions; a function's number is its place.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Whether locks of a program or library are described.
    #[must_use]
    pub fn describes(&self, file: &Path) -> bool {
        self.kinds.iter().any(|kind| kind.describes(file))
    }

    /// What belongs to the described locks of a program or library, if that is told.
    #[must_use]
    pub fn inside(&self, file: &Path) -> Option<Inside> {
        let kinds = self.kinds.iter().filter(|kind| kind.describes(file));
        let patterns: Vec<Pattern> = kinds.flat_map(|kind| &kind.inside).cloned().collect();
        (!patterns.is_empty()).then_some(Inside(patterns))
    }

    /// The functions that are described of a program or library, with their numbers.
    pub fn of_file(&self, file: &Path) -> impl Iterator<Item = (usize, &Function)> {
        let known: Vec<bool> = self.kinds.iter().map(|kind| kind.describes(file)).collect();
        self.functions.iter().enumerate().filter(move |(_, function)| known.get(function.kind) == Some(&true))
    }

    /// The kind of a lock that the kernel side has met, and what it is called, if that is told.
    #[must_use]
    pub fn told(&self, lock: &Introduced) -> Option<(&str, Option<String>)> {
        let kind = self.kinds.get(lock.kind as usize)?;
        Some((&kind.name, kind.name_of(lock)))
    }
}

impl Described {
    /// Whether a program or library has such locks.
    #[must_use]
    pub fn describes(&self, file: &Path) -> bool {
        self.files.iter().any(|pattern| pattern.matches_file(file))
    }

    /// What a lock of the kind is called that is known by numbers.
    #[must_use]
    pub fn name_of_numbered(&self, lock: u64) -> Option<String> {
        let (number, part) = custom::numbers(lock)?;
        self.name_by(number, Some(part))
    }

    fn name_of(&self, lock: &Introduced) -> Option<String> {
        if lock.is_named == 0 {
            return None;
        }
        if self.kernel.numbered != 0 && custom::numbers(lock.number).is_some() {
            return self.name_of_numbered(lock.number);
        }
        if self.kernel.name.size == Place::TEXT {
            let text = lock.text.split(|&b| b == 0).next().unwrap_or_default();
            return (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned());
        }
        self.name_by(lock.number, None)
    }

    /// What locks of this number are called, and of this second one, if it tells them apart.
    fn name_by(&self, number: u64, part: Option<u64>) -> Option<String> {
        let known = usize::try_from(number).ok().and_then(|number| self.names.get(number));
        let other = || self.other.as_ref().map(|other| other.replace(PART, &number.to_string()));
        let parted = |name: &String| part.map_or_else(|| name.clone(), |part| name.replace(PART, &part.to_string()));
        known.filter(|name| !name.is_empty()).map(parted).or_else(other)
    }
}

/// What stands for a number in a name.
const PART: &str = "{}";

/// Whether a kind has the functions that it needs.
fn roles(lock: &file::Lock) -> Result<(), &'static str> {
    let any = |is: fn(Does) -> bool| lock.function.iter().any(|function| is(function.get_ref().does));
    let identifies = lock.name.as_ref().is_some_and(|name| name.get_ref().identifies);
    if !any(|does| matches!(does, Does::Blocks | Does::Wakes)) {
        if identifies {
            return Err("only locks of which nothing but waits are seen (`does = \"blocks\"`) are known by numbers");
        }
        let both = any(|does| does == Does::Release) && lock.function.len() > 1;
        return if both {
            Ok(())
        } else {
            Err(
                "a lock has a function that gets it and one that releases it (`does = \"release\"`), or one that `blocks`",
            )
        };
    }
    if any(|does| !matches!(does, Does::Blocks | Does::Wakes)) {
        return Err("a kind of which some functions block or wake has no others: describe a second kind");
    }
    if !any(|does| does == Does::Blocks) {
        return Err("where one wakes, another `blocks`");
    }
    if lock.taken.is_some() || lock.recursive || lock.sort != Sort::Mutex {
        return Err("of what blocks nothing but waits are seen: leave out `taken`, `recursive` and `sort`");
    }
    Ok(())
}

/// What the kernel side has to know of a kind.
fn kind(lock: &file::Lock) -> Result<Kind, Mistake> {
    let sort = match lock.sort {
        Sort::Mutex => sort::MUTEX,
        Sort::Rwlock => sort::RWLOCK,
        Sort::Spin => sort::SPIN,
    };
    let mut kind = Kind { sort, recursive: u32::from(lock.recursive), ..Kind::default() };
    if let Some(taken) = &lock.taken {
        let (span, taken) = (taken.span(), taken.get_ref());
        kind.taken = of_lock(taken.at.0, taken.size.0).ok_or_else(|| not_of_lock(span.clone()))?;
        kind.exclusive_mask = taken.mask.unwrap_or(u64::MAX);
        kind.shared_mask = taken.shared_mask.unwrap_or(kind.exclusive_mask);
        kind.waiters_mask = taken.waiters_mask;
        kind.inverted = u32::from(taken.when == When::Zero);
        if lock.sort == Sort::Rwlock && taken.shared_mask.is_none() {
            let what = "a read-write lock says by other bits that readers have to wait: `shared_mask`";
            return Err(mistake(span, what.to_owned()));
        }
        if kind.exclusive_mask == 0 || kind.shared_mask == 0 {
            return Err(mistake(span, "a mask of 0 has no bit that could tell".to_owned()));
        }
    }
    if let Some(owner) = &lock.owner {
        kind.owner = of_lock(owner.get_ref().at.0, owner.get_ref().size.0).ok_or_else(|| not_of_lock(owner.span()))?;
        if lock.taken.is_none() {
            let what = "`owner` is read where the lock is taken, which only `taken` tells";
            return Err(mistake(owner.span(), what.to_owned()));
        }
    }
    if let Some(name) = &lock.name {
        let (span, name) = (name.span(), name.get_ref());
        let (address, size) = match (name.text, name.number) {
            (Some(text), None) if name.names.is_empty() && name.other.is_none() => (text.0, Place::TEXT),
            (None, Some(number)) if !name.names.is_empty() || name.other.is_some() => (number.0, name.size.0),
            _ => {
                let what = "a name is `text`, or a `number` with `names`, or `other`, or both";
                return Err(mistake(span, what.to_owned()));
            }
        };
        if name.names.len() > MAX_NAMES {
            return Err(mistake(span, format!("more than {MAX_NAMES} names")));
        }
        kind.name = of_lock(address, size).ok_or_else(|| not_of_lock(span.clone()))?;
        if name.identifies {
            if size != 1 {
                return Err(mistake(span, "what identifies a lock is a `number` of one byte (`size = 1`)".to_owned()));
            }
            kind.numbered = 1;
        }
        if let Some(part) = name.part {
            let parted: Vec<usize> = (0..name.names.len()).filter(|&n| name.names[n].contains(PART)).collect();
            if parted.iter().any(|&number| number >= 64) {
                return Err(mistake(span, "`{}` is in names up to number 63".to_owned()));
            }
            kind.parted = parted.iter().map(|number| 1 << number).sum();
            if !name.identifies || kind.parted == 0 {
                let what = "`part` is the number for `{}` in `names`, where the `number` identifies the lock (`identifies = true`)";
                return Err(mistake(span, what.to_owned()));
            }
            kind.part = of_lock(part.0, 4).ok_or_else(|| not_of_lock(span))?;
        }
    }
    Ok(kind)
}

/// A described function.
fn row(function: &Spanned<file::Function>, kind: usize, of: &Kind, line: usize) -> Result<Function, Mistake> {
    let (span, f) = (function.span(), function.get_ref());
    let wrong = |what: &str| Err(mistake(span.clone(), what.to_owned()));
    let (text, key) = match (&f.symbol, &f.name, &f.point) {
        (Some(symbol), None, None) => (symbol, Key::Symbol),
        (None, Some(name), None) => (name, Key::Name),
        (None, None, Some(point)) => (point, Key::Point),
        _ => return wrong("a function has a `symbol`, or a `name` as it is written in C++ or Rust, or a `point`"),
    };
    if text.chars().all(|c| matches!(c, '*' | '?' | ':')) {
        return wrong("a pattern that every function has describes none");
    }
    let is_point = key == Key::Point;
    if is_point && !text.contains(':') {
        return wrong("a point is written `provider:name`");
    }
    let tells = matches!(f.does, Does::Waits | Does::Acquired | Does::Failed);
    if is_point && !tells && f.does != Does::Release || !is_point && tells {
        return wrong(
            "a function does `acquire`, `try` or `release`, or `blocks` or `wakes`; a point tells of `waits`, `acquired`, `failed` or `release`",
        );
    }
    if is_point && (f.fails.is_some() || matches!(f.shared, Shared::If { .. }) || f.lock.0.base == Base::Static) {
        return wrong("a point passes the lock as an argument, and tells the rest by `does` and by `shared = true`");
    }
    let argument = match f.lock.0.base {
        Base::Argument(argument) => argument,
        Base::Static => custom::Function::STATIC,
        Base::Lock => return wrong("`lock` begins with an argument, arg0 to arg5, or with `static`"),
    };
    let fails = match f.fails {
        None => fails::NEVER,
        Some(Fails::Zero) => fails::ZERO,
        Some(Fails::Nonzero) => fails::NONZERO,
        Some(Fails::Negative) => fails::NEGATIVE,
        Some(Fails::False) => fails::FALSE,
        Some(Fails::True) => fails::TRUE,
        Some(Fails::Null) => fails::NULL,
    };
    let does = match f.does {
        Does::Acquire => does::ACQUIRE,
        Does::Try => does::TRY,
        Does::Release => does::RELEASE,
        Does::Blocks => does::BLOCKS,
        Does::Wakes => does::WAKES,
        Does::Waits => does::WAITS,
        Does::Acquired => does::ACQUIRED,
        Does::Failed => does::FAILED,
    };
    match f.does {
        Does::Try if f.fails.is_none() => return wrong("a function that tries tells by its result: `fails`"),
        Does::Release | Does::Wakes if f.fails.is_some() || f.shared != Shared::default() => {
            return wrong("a function that releases neither fails nor asks for shared access");
        }
        Does::Blocks if !f.watch_return => return wrong("a function that blocks is watched to its return"),
        _ if f.fails.is_some() && !f.watch_return => {
            return wrong(
                "a function that may fail tells by its result, for which it is watched to its return: leave `watch_return` out",
            );
        }
        _ if f.shared != Shared::default() && of.sort != sort::RWLOCK => {
            return wrong("only a read-write lock (`sort = \"rwlock\"`) is shared");
        }
        _ => {}
    }
    let (mode_argument, shared_value, shared) = match f.shared {
        Shared::Fixed(shared) => (custom::Function::FIXED, 0, shared),
        Shared::If { argument, is } => (argument, is, false),
    };
    let lock = Place { size: 8, ..f.lock.0.place };
    let (owner, instance) = beside(function, argument)?;
    let known = |argument: &u32| *argument != custom::Function::FIXED && *argument != custom::Function::STATIC;
    let last = [argument, mode_argument].into_iter().filter(known).max();
    Ok(Function {
        pattern: Pattern::new(text),
        key,
        kind,
        kernel: custom::Function {
            lock,
            owner,
            instance,
            shared_value: shared_value.into(),
            argument,
            mode_argument,
            shared: u32::from(shared),
            kind: kind as u32,
            does,
            fails,
        },
        is_watched: !is_point && !matches!(f.does, Does::Release | Does::Wakes) && f.watch_return,
        arguments: last.map_or(0, |last| last as usize + 1),
        is_optional: f.optional,
        line,
    })
}

/// Where it stands who holds the lock, and where the single lock is, behind the argument that leads to it.
fn beside(function: &Spanned<file::Function>, argument: u32) -> Result<(Place, Place), Mistake> {
    let f = function.get_ref();
    let wrong = |what: &str| Err(mistake(function.span(), what.to_owned()));
    let of = |address: Address, size| Place { size, ..address.place };
    let owner = f.owner.as_ref().map(|owner| (owner.at.0, owner.size.0));
    let instance = f.instance.map(|instance| (instance.0, 8));
    if owner.is_some() && f.does != Does::Blocks || instance.is_some() && !matches!(f.does, Does::Blocks | Does::Wakes)
    {
        return wrong("`owner` is of a function that `blocks`, `instance` of one that does, or `wakes`");
    }
    if [owner, instance].into_iter().flatten().any(|(address, _)| address.base != Base::Argument(argument)) {
        return wrong("`owner` and `instance` begin with the same argument as `lock`");
    }
    let place = |found: Option<(Address, u32)>| found.map_or(Place::NONE, |(address, size)| of(address, size));
    Ok((place(owner), place(instance)))
}

/// Something of this size at an address that begins with the lock.
fn of_lock(address: Address, size: u32) -> Option<Place> {
    (address.base == Base::Lock).then_some(Place { size, ..address.place })
}

fn not_of_lock(span: std::ops::Range<usize>) -> Mistake {
    mistake(span, "a place in a lock begins with `lock`: lock+4, *(lock+8)".to_owned())
}

fn mistake(span: std::ops::Range<usize>, what: String) -> Mistake {
    Mistake { span, what }
}
