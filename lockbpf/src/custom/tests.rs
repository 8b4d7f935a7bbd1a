use super::*;
use proptest::prelude::*;
use std::path::Path;

const MUTEX: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "latch"
files = ["app", "libapp.so*"]
taken = { at = "lock+4" }
owner = { at = "lock+8" }
name = { text = "*(lock+0x10)" }
[[lock.function]]
symbol = "latch_get"
does = "acquire"
lock = "*(arg1+8)"
[[lock.function]]
symbol = "latch_put"
does = "release"
"#;

fn catalogue(text: &str) -> Result<Catalogue, DescriptionError> {
    let mut catalogue = Catalogue::default();
    catalogue.add(text, "x.toml")?;
    Ok(catalogue)
}

/// The mistake in the text in which `from` is replaced.
fn mistake(from: &str, to: &str) -> DescriptionError {
    assert!(MUTEX.contains(from));
    catalogue(&MUTEX.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn what_a_file_says() {
    let latch = catalogue(MUTEX).unwrap();
    assert!(latch.describes(Path::new("/usr/lib/libapp.so.3")) && !latch.describes(Path::new("/usr/bin/apps")));
    let [get, put] = latch.functions() else { panic!("{latch:?}") };
    assert_eq!((get.pattern.text(), get.line, get.is_watched, get.arguments), ("latch_get", 8, true, 2));
    let lock = Place { offsets: [8, 0, 0, 0], reads: 1, size: 8 };
    assert_eq!((get.kernel.lock, get.kernel.argument, get.kernel.does), (lock, 1, does::ACQUIRE));
    assert_eq!((put.kernel.does, put.is_watched, put.arguments), (does::RELEASE, false, 1));
    let kind = latch.kinds()[0].kernel;
    assert_eq!((kind.taken.offsets[0], kind.taken.size, kind.exclusive_mask), (4, 4, u64::MAX));
    assert_eq!((kind.name.size, kind.name.reads, kind.name.offsets[0]), (Place::TEXT, 1, 16));
}

#[test]
fn mistakes_have_lines() {
    for (from, to, line, what) in [
        ("lockbpf.locks/1", "lockbpf.locks/2", 1, "reads lockbpf.locks/1"),
        ("kind = \"latch\"", "kind = \"\"", 3, "1 to 40 bytes"),
        ("kind = \"latch\"\n", "", 2, "missing field `kind`"),
        ("files = [\"app\", \"libapp.so*\"]", "files = []", 4, "names no program"),
        ("\"lock+4\"", "\"arg0\"", 5, "begins with `lock`"),
        ("\"lock+4\"", "\"lock+4\", mask = 0", 5, "mask of 0"),
        ("\"lock+4\"", "\"lock+4\", size = 3", 5, "1, 2, 4 or 8 bytes"),
        ("\"lock+4\"", "\"lock*4\"", 5, "is no place"),
        ("taken = { at = \"lock+4\" }\n", "", 5, "only `taken` tells"),
        ("text = \"*(lock+0x10)\"", "number = \"lock\"", 7, "a name is"),
        ("symbol = \"latch_get\"", "symbol = \"*\"", 8, "describes none"),
        ("symbol = \"latch_get\"", "symbol = \"a\"\nname = \"b\"", 8, "a `symbol`, or a `name`"),
        ("does = \"acquire\"", "does = \"try\"", 8, "tells by its result"),
        ("does = \"acquire\"", "does = \"acquire\"\nshared = true", 8, "only a read-write lock"),
        ("lock = \"*(arg1+8)\"", "lock = \"lock\"", 8, "or with `static`"),
        ("\"lock+4\"", "\"static\"", 5, "begins with `lock`"),
        (
            "does = \"acquire\"",
            "does = \"acquire\"\nfails = \"zero\"\nwatch_return = false",
            8,
            "watched to its return",
        ),
        ("does = \"acquire\"", "does = \"acquire\"\nshared = \"arg9 == 1\"", 11, "a condition like"),
        ("does = \"release\"", "does = \"release\"\nfails = \"zero\"", 12, "neither fails"),
        ("does = \"release\"", "does = \"acquire\"", 2, "one that releases"),
        ("does = \"release\"", "does = \"drop\"", 14, "unknown variant"),
        ("does = \"release\"", "does = \"release\"\nretries = 3", 15, "unknown field"),
        ("[[lock]]", "[[lock", 2, ""),
    ] {
        let error = mistake(from, to);
        assert_eq!(error.line, line, "{to}: {error}");
        assert!(error.what.contains(what) && error.to_string().starts_with("x.toml, line "), "{to}: {error}");
    }
    let point = "point = \"app:got\"\ndoes = \"acquired\"";
    for (to, what) in [
        ("point = \"app:got\"\ndoes = \"acquire\"", "a point tells of `waits`"),
        ("symbol = \"got\"\ndoes = \"acquired\"", "a point tells of `waits`"),
        ("point = \"got\"\ndoes = \"acquired\"", "`provider:name`"),
        ("point = \"*:*\"\ndoes = \"acquired\"", "describes none"),
        (&format!("{point}\nname = \"got\""), "or a `point`"),
        (&format!("{point}\nfails = \"zero\""), "tells the rest by `does`"),
        (&format!("{point}\nshared = \"arg1 == 1\""), "tells the rest by `does`"),
        (&format!("{point}\nshared = true"), "only a read-write lock"),
    ] {
        let error = mistake("symbol = \"latch_get\"\ndoes = \"acquire\"", to);
        assert!(error.line == 8 && error.what.contains(what), "{to}: {error}");
    }
    let rwlock = mistake("kind = \"latch\"", "kind = \"latch\"\nsort = \"rwlock\"");
    assert!(rwlock.line == 6 && rwlock.what.contains("`shared_mask`"), "{rwlock}");
}

#[test]
fn points_are_told_apart_from_functions() {
    let told = "point = \"app:got\"\ndoes = \"acquired\"";
    let latch = catalogue(&MUTEX.replacen("symbol = \"latch_get\"\ndoes = \"acquire\"", told, 1)).unwrap();
    let [got, put] = latch.functions() else { panic!("{latch:?}") };
    assert_eq!((got.key, got.kernel.does, got.is_watched), (Key::Point, does::ACQUIRED, false));
    assert_eq!((put.key, put.kernel.does), (Key::Symbol, does::RELEASE));
}

#[test]
fn nothing_of_a_file_with_a_mistake_is_taken() {
    let mut both = catalogue(MUTEX).unwrap();
    assert!(
        both.add(&MUTEX.replacen("\"latch_put\"\ndoes", "\"latch_put\"\nlock = \"x\"\ndoes", 1), "y.toml").is_err()
    );
    assert_eq!((both.kinds().len(), both.functions().len()), (1, 2));
    both.add(MUTEX, "z.toml").unwrap();
    assert_eq!((both.kinds().len(), both.functions()[3].kernel.kind), (2, 1));
    for _ in 2..MAX_KINDS {
        both.add(MUTEX, "z.toml").unwrap();
    }
    assert!(both.add(MUTEX, "z.toml").unwrap_err().what.contains("more than 32 kinds"));
}

#[test]
fn locks_are_called_by_number_or_text() {
    let introduced = |number, text: &str| {
        let mut padded = [0; custom::NAME];
        padded[..text.len()].copy_from_slice(text.as_bytes());
        Introduced { number, kind: 0, is_named: 1, text: padded }
    };
    let latch = catalogue(MUTEX).unwrap();
    assert_eq!(latch.told(&introduced(0, "pool")), Some(("latch", Some("pool".to_owned()))));
    assert_eq!(latch.told(&Introduced { is_named: 0, ..introduced(0, "pool") }), Some(("latch", None)));
    assert_eq!(latch.told(&Introduced { kind: 1, ..introduced(0, "pool") }), None);
    let numbers = "number = \"lock\", size = 2, names = [\"\", \"one\"], other = \"number {}\"";
    let numbered = catalogue(&MUTEX.replacen("text = \"*(lock+0x10)\"", numbers, 1)).unwrap();
    let name = |number| numbered.told(&introduced(number, "")).unwrap().1.unwrap();
    assert_eq!((name(1), name(0), name(7)), ("one".to_owned(), "number 0".to_owned(), "number 7".to_owned()));
}

#[test]
fn what_a_process_waits_for_is_read_from_a_variable() {
    let with = |waiting: &str, identifies: bool| {
        let name =
            if identifies { "name = { number = \"lock\", size = 1, identifies = true, other = \"{}\" }\n" } else { "" };
        let text = format!(
            "format = \"lockbpf.locks/1\"\n[[lock]]\nkind = \"room\"\nfiles = [\"rooms\"]\n{name}waiting = {{ {waiting} }}\n\
             function = [{{ symbol = \"room_wait\", does = \"blocks\" }}]\n"
        );
        let mut catalogue = Catalogue::default();
        catalogue.add(&text, "rooms.toml").map(|()| catalogue.kinds()[0].waiting.clone().unwrap())
    };
    let right = r#"variable = "own", lock = "*(*(static)+8)", owner = "*(lock)+4""#;
    let told = with(right, true).unwrap();
    assert_eq!((told.variable.as_str(), told.lock.reads, told.owner.size), ("own", 2, 4));
    assert_eq!(with(r#"variable = "own", lock = "*static""#, true).unwrap().owner, Place::NONE);
    for (wrong, says) in [
        (r#"variable = "own", lock = "static""#, "is read from the variable"),
        (r#"variable = "own", lock = "*arg0""#, "is read from the variable"),
        (r#"variable = "own", lock = "*static", owner = "static+4""#, "a place of the lock"),
        (r#"variable = "", lock = "*static""#, "has a symbol"),
        (r#"variable = "own""#, "lock"),
    ] {
        let error = with(wrong, true).unwrap_err();
        assert!(error.what.contains(says) && error.line > 4, "{wrong}: {error}");
    }
    assert!(with(right, false).unwrap_err().what.contains("identifies"));
}

#[test]
fn what_is_shipped_is_right() {
    let mut all = Catalogue::default();
    for (name, text) in SHIPPED {
        all.add(text, name).unwrap();
    }
    let postgres = Path::new("/usr/lib/postgresql/15/bin/postgres");
    let first = all.of_file(postgres).next().unwrap().1;
    let tranche =
        |number| all.told(&Introduced { number, kind: first.kind as u32, is_named: 1, text: [0; custom::NAME] });
    // lwlocknames.h and lwlock.h of PostgreSQL 15.
    for (number, name) in [
        (4, "ProcArray"),
        (8, "WALWrite"),
        (55, "WALInsert"),
        (56, "BufferContent"),
        (60, "BufferMapping"),
        (74, "PgStatsData"),
        (99, "tranche 99"),
    ] {
        assert_eq!(tranche(number).unwrap().1.as_deref(), Some(name));
    }
    assert!(all.of_file(Path::new("/opt/pg/bin/postgres")).all(|(_, f)| f.kind != first.kind));
    let sleeps = all.of_file(postgres).find(|(_, f)| f.pattern.text() == "ProcSleep").unwrap().1;
    let heavy = |kind: &str, part| {
        let number =
            custom::numbered(all.kinds()[sleeps.kind].names.iter().position(|n| n == kind).unwrap() as u64, part);
        all.told(&Introduced { number, kind: sleeps.kind as u32, is_named: 1, text: [0; custom::NAME] }).unwrap().1
    };
    // LockTagType of lock.h.
    assert_eq!(heavy("tuple {}", 16_390).as_deref(), Some("tuple 16390"));
    // Which number a name has depends on the release, which the path tells.
    for release in 10..=18 {
        for path in
            ["/usr/lib/postgresql/N/bin", "/usr/pgsql-N/bin", "/usr/lib/postgresqlN/bin", "/usr/libexec/postgresqlN"]
        {
            let path = format!("{}/postgres", path.replace('N', &release.to_string()));
            let sleeps = all.of_file(Path::new(&path)).find(|(_, f)| f.pattern.text() == "ProcSleep").unwrap().1;
            let kind = &all.kinds()[sleeps.kind];
            assert_eq!(kind.names[if release < 13 { 4 } else { 5 }], "transactionid", "{path}");
            assert_eq!(
                (kind.waiting.is_some(), sleeps.kernel.owner.is_known()),
                (release > 13, release > 13),
                "{path}"
            );
        }
    }
    let gomp = all.of_file(Path::new("/usr/lib/x86_64-linux-gnu/libgomp.so.1"));
    let (by_code, by_argument): (Vec<_>, Vec<_>) =
        gomp.map(|(_, f)| f).partition(|f| f.kernel.argument == custom::Function::STATIC);
    let names: Vec<_> = by_code.iter().map(|f| f.pattern.text()).collect();
    assert_eq!(names, ["GOMP_critical_start", "GOMP_critical_end", "GOMP_atomic_start", "GOMP_atomic_end"]);
    assert!(by_code.iter().all(|f| f.arguments == 0) && by_argument.iter().all(|f| f.arguments == 1));
}

const ROOMS: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "door"
files = ["rooms"]
inside = ["room_*"]
name = { number = "lock", size = 1, identifies = true, part = "lock+4", names = ["hall", "room {}"], other = "door {}" }
[[lock.function]]
symbol = "room_wait"
does = "blocks"
lock = "*(arg0+8)"
owner = { at = "*(arg0+8)+8" }
instance = "*(arg0+8)"
[[lock.function]]
symbol = "room_hand"
does = "wakes"
"#;

#[test]
fn locks_of_which_waits_are_described() {
    let rooms = catalogue(ROOMS).unwrap();
    let [wait, hand] = rooms.functions() else { panic!("{rooms:?}") };
    assert_eq!((wait.kernel.does, wait.is_watched), (does::BLOCKS, true));
    assert_eq!((hand.kernel.does, hand.is_watched), (does::WAKES, false));
    let place = |last, size| Place { offsets: [8, last, 0, 0], reads: 1, size };
    assert_eq!((wait.kernel.owner, wait.kernel.instance), (place(8, 4), place(0, 8)));
    assert!(!hand.kernel.owner.is_known() && !hand.kernel.instance.is_known());
    let kind = rooms.kinds()[0].kernel;
    assert_eq!((kind.numbered, kind.parted, kind.part.offsets[0], kind.part.size), (1, 0b10, 4, 4));
    let introduced = |lock| Introduced { number: lock, kind: 0, is_named: 1, text: [0; custom::NAME] };
    let name = |number, part| rooms.told(&introduced(custom::numbered(number, part))).unwrap().1.unwrap();
    assert_eq!([name(0, 0), name(1, 7), name(2, 0)], ["hall", "room 7", "door 2"]);
    let inside = rooms.inside(Path::new("/bin/rooms")).unwrap();
    assert!(inside.has(Some("room_wait")) && inside.has(None) && !inside.has(Some("keep")));
    assert!(rooms.inside(Path::new("/bin/others")).is_none());
}

#[test]
fn mistakes_of_what_blocks() {
    let release = "[[lock.function]]\nsymbol = \"room_put\"\ndoes = \"release\"\n";
    for (from, to, what) in [
        ("\"blocks\"", "\"acquire\"", "of a function that `blocks`"),
        ("\"wakes\"", "\"release\"", "has no others"),
        ("does = \"wakes\"\n", &format!("does = \"wakes\"\n{release}"), "has no others"),
        ("\"wakes\"", "\"wakes\"\nfails = \"zero\"", "neither fails"),
        ("\"wakes\"", "\"wakes\"\nowner = { at = \"arg0\" }", "of a function that `blocks`"),
        ("\"blocks\"", "\"blocks\"\nwatch_return = false", "watched to its return"),
        ("instance = \"*(arg0+8)\"", "instance = \"arg1\"", "the same argument"),
        ("inside = [\"room_*\"]", "recursive = true", "leave out `taken`"),
        ("inside = [\"room_*\"]", "sort = \"rwlock\"", "leave out `taken`"),
        ("identifies = true, ", "", "where the `number` identifies"),
        ("room {}", "room", "where the `number` identifies"),
        ("part = \"lock+4\"", "part = \"arg0\"", "begins with `lock`"),
        (
            "does = \"blocks\"\nlock = \"*(arg0+8)\"\nowner = { at = \"*(arg0+8)+8\" }",
            "does = \"wakes\"",
            "another `blocks`",
        ),
    ] {
        assert!(ROOMS.contains(from), "{from}");
        let error = catalogue(&ROOMS.replacen(from, to, 1)).unwrap_err();
        assert!(error.what.contains(what), "{to}: {error}");
    }
    let large = ROOMS.replacen("size = 1", "size = 2", 1);
    assert!(catalogue(&large).unwrap_err().what.contains("of one byte"));
    let many = ROOMS.replacen("[\"hall\", ", &format!("[{}", "\"hall\", ".repeat(64)), 1);
    assert!(catalogue(&many).unwrap_err().what.contains("up to number 63"));
    let identified =
        MUTEX.replacen("text = \"*(lock+0x10)\"", "number = \"lock\", size = 1, other = \"{}\", identifies = true", 1);
    assert!(catalogue(&identified).unwrap_err().what.contains("nothing but waits"));
}

proptest! {
    #[test]
    fn no_text_panics(text: String) {
        let _ = catalogue(&text);
    }

    /// A file in which something was overwritten.
    #[test]
    fn damage_never_panics(at in 0..MUTEX.len(), with in "[\\x00-\\x7fé\"\\[\\]{}=*0-9]{0,6}", cut in 0..12usize) {
        let from = MUTEX.floor_char_boundary(at);
        let to = MUTEX.floor_char_boundary((from + cut).min(MUTEX.len()));
        let damaged = [&MUTEX[..from], &with, &MUTEX[to..]].concat();
        if let Err(error) = catalogue(&damaged) {
            prop_assert!(error.line >= 1 && error.line <= damaged.bytes().filter(|&b| b == b'\n').count() + 1);
        }
    }
}
