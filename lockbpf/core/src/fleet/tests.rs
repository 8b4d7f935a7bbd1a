//! Tables of made-up recordings.

use super::*;
use crate::render::Page;
use crate::render::tests::page_of;
use bytes::Bytes;

/// One thread waits for `L` while another holds it, and a third waits for both.
const LINES: &str = r#"{"t":0,"tid":1,"op":"attempt","lock":"L","site":"writer (a.c:1)","comm":"w"}
{"t":0,"tid":1,"op":"acquire","lock":"L"}
{"t":10,"tid":2,"op":"attempt","lock":"L","site":"reader (b.c:2)","stack":["reader (b.c:2)","main (b.c:9)"]}
{"t":15,"tid":3,"op":"attempt","lock":"L","site":"reader (b.c:2)","stack":["reader (b.c:2)"]}
{"t":40,"tid":1,"op":"release","lock":"L"}
{"t":40,"tid":2,"op":"acquire","lock":"L"}
{"t":60,"tid":2,"op":"release","lock":"L"}
{"t":60,"tid":3,"op":"acquire","lock":"L"}
{"t":61,"tid":3,"op":"release","lock":"L"}
"#;

fn page() -> Page {
    Page { started_ns: Some(1_000_000_000_500_000), ..page_of(LINES) }
}

/// All tables of a page.
fn all(run: &Run, page: &Page) -> Vec<Table> {
    let tables = Tables::new(&id(run, page), run, &page.report, page.started_ns);
    let timeline = &page.pictures.timeline;
    let mut threads = Threads::default();
    threads.take(timeline);
    let edges = tables.edges(timeline, &threads);
    let of_timeline = [edges, tables.waits(timeline), tables.holds(timeline), tables.stacks(timeline)];
    tables.of_report(run).into_iter().chain(of_timeline).collect()
}

fn id(run: &Run, page: &Page) -> String {
    let timeline = &page.pictures.timeline;
    run.id(&page.report, (timeline.start_ns, timeline.end_ns), page.started_ns)
}

/// The texts of a column, by rows.
fn texts(column: &Column) -> Vec<&str> {
    let Column::Text(words) = column else { panic!("{column:?}") };
    let text = |&row: &u32| words.words().get(row as usize)?.as_deref();
    words.rows().iter().map(|row| text(row).map_or("", |text| std::str::from_utf8(text).unwrap())).collect()
}

fn column<'a>(tables: &'a [Table], table: &str, name: &str) -> &'a Column {
    let table = tables.iter().find(|t| t.name == table).unwrap();
    &table.columns.iter().find(|(n, _)| *n == name).unwrap().1
}

fn sum(column: &Column) -> i64 {
    let Column::Whole(values) = column else { panic!("{column:?}") };
    values.iter().flatten().sum()
}

#[test]
fn tables_add_up_to_the_report() {
    let (page, run) = (page(), Run { host: "h".into(), version: Some("1.2".into()), ..Run::default() });
    let tables = all(&run, &page);
    let names: Vec<_> = tables.iter().map(|table| table.name).collect();
    assert_eq!(names, ["runs", "locks", "sites", "edges", "waits", "holds", "stacks"]);
    for table in &tables {
        assert!(
            table.columns.iter().all(|(_, column)| column.len() == table.rows() && !column.is_empty()),
            "{table:?}"
        );
    }
    // 30 and 45 ns.
    for (table, name) in
        [("runs", "wait_ns"), ("locks", "wait_ns"), ("sites", "wait_ns"), ("waits", "wait_ns"), ("edges", "wait_ns")]
    {
        assert_eq!(sum(column(&tables, table, name)), 75, "{table}");
    }
    assert_eq!(sum(column(&tables, "waits", "blamed_ns")), 75);
    assert_eq!(sum(column(&tables, "holds", "hold_ns")), 61);
    assert_eq!(texts(column(&tables, "waits", "lock")), ["L"; 2]);
    assert_eq!(texts(column(&tables, "waits", "holder_site")), ["writer (a.c:1)"; 2]);
    assert_eq!(texts(column(&tables, "runs", "version")), ["1.2"]);
    assert_eq!(texts(column(&tables, "locks", "process")), [""]);
    assert_eq!(*column(&tables, "waits", "started"), Column::Moment(vec![Some(1_000_000_000_500); 2]));
    let Column::Texts(frames) = column(&tables, "stacks", "frames") else { panic!("frames are lists") };
    assert!(frames.contains(&["reader", "main"].map(|name| Bytes::from(name.to_owned())).to_vec()), "{frames:?}");
}

#[test]
fn a_recording_keeps_its_key_and_others_have_another_one() {
    let (page, run) = (page(), Run { host: "h".into(), ..Run::default() });
    assert_eq!(id(&run, &page), id(&run, &page.clone()));
    assert_eq!(id(&run, &page).len(), 16);
    assert_ne!(id(&run, &page), id(&Run { host: "i".into(), ..Run::default() }, &page));
    assert_ne!(id(&run, &page), id(&run, &Page { started_ns: None, ..page.clone() }));
    // What the user calls its version is no part of it.
    assert_eq!(id(&run, &page), id(&Run { version: Some("2".into()), ..run.clone() }, &page));
}

/// Two programs share a lock; one thread of each is woken by the other.
const SHARED: &str = r#"{"t":0,"tid":1,"pid":10,"op":"attempt","lock":"queue","site":"push (web.c:1)","comm":"web"}
{"t":0,"tid":1,"op":"acquire","lock":"queue"}
{"t":10,"tid":2,"pid":20,"op":"attempt","lock":"queue","site":"pop (worker.c:1)","comm":"worker"}
{"t":15,"tid":3,"pid":20,"op":"attempt","lock":"queue","site":"pop (worker.c:1)","comm":"helper"}
{"t":40,"tid":1,"op":"release","lock":"queue"}
{"t":40,"tid":2,"op":"acquire","lock":"queue","waker":1}
{"t":60,"tid":2,"op":"release","lock":"queue"}
{"t":60,"tid":3,"op":"acquire","lock":"queue","waker":2}
{"t":61,"tid":3,"op":"release","lock":"queue"}
"#;

#[test]
fn programs_that_share_a_lock_are_told_apart() {
    let page = page_of(SHARED);
    let tables = all(&Run::default(), &page);
    let edges = |name| texts(column(&tables, "edges", name));
    let mut told: Vec<_> =
        edges("waiter_process").into_iter().zip(edges("holder_process")).zip(edges("holder_thread")).collect();
    told.sort_unstable();
    assert_eq!(told, [(("worker", "web"), "web"), (("worker", "worker"), "worker")]);
    let waits = |name| texts(column(&tables, "waits", name));
    assert_eq!(waits("waiter_process"), ["worker"; 2]);
    assert_eq!(waits("thread"), ["worker", "helper"]);
    // The second one waits longer for the first program.
    assert_eq!(waits("holder_process"), ["web"; 2]);
    assert_eq!(waits("waker_tid"), ["1", "2"]);
    assert_eq!(texts(column(&tables, "holds", "holder_process")), ["web", "worker", "worker"]);
    for (table, name, rows) in [("locks", "lock_id", 1), ("waits", "lock_id", 2), ("holds", "lock_id", 3)] {
        assert_eq!(*column(&tables, table, name), Column::Whole(vec![Some(0); rows]), "{table}");
    }
    assert_eq!(*column(&tables, "waits", "holder_lock_id"), Column::Whole(vec![Some(0); 2]));
}

#[test]
fn a_lock_has_the_same_number_in_all_tables() {
    let tables = all(
        &Run::default(),
        &page_of(&(LINES.to_owned() + &LINES.replace("\"L\"", "\"K\"").replace("\"tid\":", "\"tid\":1"))),
    );
    let locks = texts(column(&tables, "locks", "lock"));
    // The table names one lock of a site that takes several.
    for table in ["sites", "edges", "waits", "holds"] {
        let Column::Whole(ids) = column(&tables, table, "lock_id") else { panic!("numbers") };
        let named: Vec<_> = ids.iter().map(|id| locks[usize::try_from(id.unwrap()).unwrap()]).collect();
        assert_eq!(named, texts(column(&tables, table, "lock")), "{table}");
        assert!(table == "sites" || (named.contains(&"K") && named.contains(&"L")), "{table}");
    }
}

#[test]
fn processes_are_told_by_their_cgroups() {
    let id = "0123456789abcdef".repeat(4);
    let uid = "0a1b2c3d-0000-1111-2222-333344445555";
    let cgroups = [
        (10, format!("/kubepods/burstable/pod{uid}/{id}")),
        (20, "/system.slice/a\\u{1b}[31m.slice/worker.service".to_owned()),
    ];
    let run = Run { cgroups: cgroups.into(), ..Run::default() };
    let page = page_of(SHARED);
    let tables = all(&run, &page);
    let one = |table, name| texts(column(&tables, table, name));
    assert_eq!((one("waits", "container_id"), one("waits", "unit")), (vec![""; 2], vec!["worker.service"; 2]));
    assert_eq!(one("waits", "holder_container_id"), [id.as_str(); 2]);
    assert_eq!((one("waits", "holder_pod"), one("waits", "holder_unit")), (vec![uid; 2], vec![""; 2]));
    assert_eq!(one("holds", "pod"), [uid, "", ""]);
    // They have nothing in common.
    assert_eq!(["container_id", "pod", "unit"].map(|name| one("runs", name)), [[""], [""], [""]]);
    let only = Run { cgroups: run.cgroups.iter().take(1).map(|(&pid, path)| (pid, path.clone())).collect(), ..run };
    let tables = all(&only, &page);
    assert_eq!(["container_id", "pod"].map(|name| texts(column(&tables, "runs", name))), [[id.as_str()], [uid]]);
    assert_eq!(texts(column(&tables, "waits", "holder_pod")), [uid; 2]);
}
