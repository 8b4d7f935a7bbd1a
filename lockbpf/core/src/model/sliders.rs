//! What-if for several sizes of the same change: how much is gained as sections get shorter, or locks are split further.

use super::what_if::{Answer, Answers, Oracle, Question};
use serde::Serialize;

/// Locks and sites asked about, of each.
const ASKED: usize = 3;
/// Shares of their own time by which sections get shorter.
const SHORTER: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];
/// Into how many locks one is split.
const PARTS: [u32; 4] = [2, 4, 8, 16];

/// Changes of several sizes to one recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sliders {
    /// What the answers have in common; those themselves are in [`Sliders::changes`].
    #[serde(flatten)]
    pub common: Answers,
    /// The greatest gain first.
    pub changes: Vec<Slider>,
}

/// A change of several sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slider {
    /// `shorter`: sections of a site by a share; `split`: a lock into parts.
    pub kind: &'static str,
    /// The site's symbol, or the lock's name.
    pub name: String,
    /// Sizes, smallest first.
    pub sizes: Vec<f64>,
    /// An answer for each.
    pub answers: Vec<Answer>,
}

impl Slider {
    fn greatest(&self) -> f64 {
        self.answers.iter().map(|answer| answer.gain).fold(0.0, f64::max)
    }
}

impl Oracle<'_> {
    /// Asks about the locks waited for longest, and the sites with most own time in their sections. A size that cannot be predicted is left out.
    #[must_use]
    pub fn sliders(&self, locks: &[String], sites: &[String]) -> Sliders {
        let (mut shorter, mut split) = (Vec::new(), Vec::new());
        for candidate in self.candidates() {
            match candidate {
                Question::Shorten(of, _) => shorter.push(of),
                Question::Remove(of) => split.push(of),
                _ => {}
            }
        }
        shorter.truncate(ASKED);
        split.truncate(ASKED);
        let name = |names: &[String], of: &[usize]| of.first().and_then(|&i| names.get(i)).cloned().unwrap_or_default();
        let shorter = shorter.iter().map(|of| {
            self.slider("shorter", name(sites, of), SHORTER.map(|by| (by, Question::Shorten(of.clone(), by))).into())
        });
        let split = split.iter().map(|of| {
            let parts = PARTS.map(|parts| (f64::from(parts), Question::Split(of.clone(), parts)));
            self.slider("split", name(locks, of), parts.into())
        });
        let mut changes: Vec<Slider> = shorter.chain(split).filter(|slider| !slider.sizes.is_empty()).collect();
        changes.sort_by(|a, b| b.greatest().total_cmp(&a.greatest()));
        Sliders { common: self.answers(Vec::new()), changes }
    }

    fn slider(&self, kind: &'static str, name: String, questions: Vec<(f64, Question)>) -> Slider {
        let asked = questions.iter().filter_map(|(size, question)| Some((*size, self.ask(question).ok()?)));
        let (sizes, answers) = asked.unzip();
        Slider { kind, name, sizes, answers }
    }
}
