//! Intervals, and the quantiles of distributions that they need.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// Normal quantile of a two-sided 95 %.
pub(super) const Z: f64 = 1.959_964;

/// An interval of which the upper end is more than so many times the lower one has no point that is worth telling.
pub const WIDE: f64 = 4.0;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The true value is at least this.
    pub low: f64,
    /// And at most this.
    pub high: f64,
}

/// Its numbers; `wide` beside them if the value is not worth telling.
impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wide = self.is_wide();
        let mut fields = serializer.serialize_struct("Interval", if wide { 4 } else { 3 })?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("low", &self.low)?;
        fields.serialize_field("high", &self.high)?;
        if wide {
            fields.serialize_field("wide", &true)?;
        }
        fields.end()
    }
}

impl Interval {
    /// Something that is known.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Whether it is so wide that its point says nothing.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.high > self.low * WIDE && self.high > self.value
    }

    /// Half of its width as a part of the value; 0 of nothing.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        if self.value > 0.0 { (self.high - self.low) / 2.0 / self.value } else { 0.0 }
    }

    /// Around a value whose error is normal with this standard deviation, where the truth is `least` at least.
    pub(crate) fn normal(value: f64, deviation: f64, least: f64) -> Self {
        let low = (value - Z * deviation).max(least).min(value);
        Self { value, low, high: value + Z * deviation }
    }

    /// Standard deviation of an estimate with such an interval.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (self.high - self.low) / 2.0 / Z
    }

    /// Each of its numbers through a function that does not change their order.
    pub(super) fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { value: f(self.value), low: f(self.low), high: f(self.high) }
    }

    /// The interval of another value that is known as well as this one.
    pub(crate) fn around(self, value: f64) -> Self {
        let factor = if self.value > 0.0 { value / self.value } else { 1.0 };
        Self { value, ..self.map(|x| x * factor) }.in_order()
    }

    /// A mean if of a share of all that it is the mean of nothing is known but that each is between 0 and `most`.
    pub(super) fn unsure(self, share: f64, most: f64) -> Self {
        Self { low: self.low * (1.0 - share), high: self.high + (most - self.high).max(0.0) * share, ..self }
    }

    /// With the value inside, where rounding or a bound has left it outside.
    pub(super) fn in_order(self) -> Self {
        Self { low: self.low.min(self.value), high: self.high.max(self.value), ..self }
    }

    /// None of its numbers more than this.
    pub(crate) fn capped(self, most: f64) -> Self {
        self.map(|x| x.min(most))
    }

    /// None of its numbers less than these.
    pub(super) fn at_least(self, least: Self) -> Self {
        Self { value: self.value.max(least.value), low: self.low.max(least.low), high: self.high.max(least.high) }
    }

    /// The mean of independent estimates with these weights, which add up to `whole`.
    #[must_use]
    pub fn mean(all: impl Iterator<Item = (Self, f64)>, whole: f64) -> Self {
        let (mut value, mut below, mut above) = (0.0, 0.0_f64, 0.0_f64);
        for (i, weight) in all {
            let part = weight / whole.max(f64::MIN_POSITIVE);
            value += part * i.value;
            below = below.hypot(part * (i.value - i.low));
            above = above.hypot(part * (i.high - i.value));
        }
        Self { value, low: (value - below).max(0.0), high: value + above }
    }

    /// Extended to what another one includes.
    pub(super) fn or(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }
}

/// What a standard error has to be multiplied with because it was itself estimated with so many degrees of freedom.
pub(super) fn student(freedom: f64) -> f64 {
    /// 97.5 % quantiles of Student's distribution with 1, 2, … degrees of freedom.
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let at = |n: f64| if n < 1.5 { T[0] } else { T.get(n as usize - 1).copied().unwrap_or(Z + 2.72 / (n - 0.5)) };
    let (below, part) = (freedom.max(1.0).floor(), freedom.max(1.0).fract());
    let t = at(below) + (at(below + 1.0) - at(below)) * part;
    t / Z
}

/// The 2.5 % and 97.5 % quantiles of a gamma distribution with this shape and mean 1 (Wilson and Hilferty).
pub(super) fn gamma(shape: f64) -> (f64, f64) {
    let shape = shape.max(0.05);
    let (mean, sd) = (1.0 - 1.0 / (9.0 * shape), (1.0 / (9.0 * shape)).sqrt());
    let quantile = |z: f64| (mean + z * sd).max(0.0).powi(3);
    (quantile(-Z), quantile(Z))
}

/// Wilson's interval of a share that was seen in `n` independent trials.
pub(super) fn wilson(share: f64, n: f64) -> (f64, f64) {
    let n = n.max(1e-9);
    let z2 = Z * Z;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).max(0.0).sqrt();
    ((middle - half).clamp(0.0, share), (middle + half).clamp(share, 1.0))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        assert!((student(3.0) * Z - 3.182).abs() < 1e-6);
        assert!((student(30.0) * Z - 2.042).abs() < 0.02);
        assert!((student(0.0) * Z - 12.706).abs() < 1e-6);
        let (low, high) = gamma(10.0);
        assert!((low - 0.4795).abs() < 0.01 && (high - 1.7085).abs() < 0.01, "{low} {high}");
        let (low, high) = wilson(0.0, 100.0);
        assert!(low == 0.0 && (high - 0.037).abs() < 0.001, "{high}");
        assert_eq!(wilson(1.0, 100.0).1, 1.0);
    }
}
