//! Trigonometric and hyperbolic functions of decimals.
//!
//! They are computed with guard digits in libdecnumber's arbitrary precision and rounded to 34 digits at the end.
//! Angles beyond 10^40 are converted to doubles: reducing them would need thousands of digits of pi, for an angle
//! that 34 digits cannot represent.

use crate::numeric::Num;
use kauri_bson::Decimal128;
use kauri_bson::decimal::Rounding;

/// Room for 120 digits.
type Number = dec::Decimal<40>;
type Context = dec::Context<Number>;

/// Digits of intermediate results.
const DIGITS: usize = 100;
/// A series ends where its terms have become smaller than this power of ten of the sum.
const SERIES_END: i32 = -75;
const PI: &str = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651";

/// Arithmetic with guard digits.
struct Math(Context);

impl Math {
    fn new() -> Math {
        let mut context = Context::default();
        // The figures are within libdecnumber's limits, so none of these fails.
        let _ = context.set_precision(DIGITS);
        let _ = context.set_max_exponent(999_999);
        let _ = context.set_min_exponent(-999_999);
        Math(context)
    }

    fn parse(&mut self, text: &str) -> Number {
        self.0.parse(text).unwrap_or_else(|_| Number::nan())
    }

    fn of(&mut self, v: Decimal128) -> Number {
        self.parse(&v.to_string())
    }

    fn int(&mut self, v: i32) -> Number {
        self.0.from_i32(v)
    }

    fn add(&mut self, mut a: Number, b: &Number) -> Number {
        self.0.add(&mut a, b);
        a
    }

    fn sub(&mut self, mut a: Number, b: &Number) -> Number {
        self.0.sub(&mut a, b);
        a
    }

    fn mul(&mut self, mut a: Number, b: &Number) -> Number {
        self.0.mul(&mut a, b);
        a
    }

    fn div(&mut self, mut a: Number, b: &Number) -> Number {
        self.0.div(&mut a, b);
        a
    }

    fn sqrt(&mut self, mut a: Number) -> Number {
        self.0.sqrt(&mut a);
        a
    }

    fn exp(&mut self, mut a: Number) -> Number {
        self.0.exp(&mut a);
        a
    }

    fn ln(&mut self, mut a: Number) -> Number {
        self.0.ln(&mut a);
        a
    }

    fn neg(&mut self, mut a: Number) -> Number {
        self.0.neg(&mut a);
        a
    }

    /// Rounds to 34 digits; a whole number has none behind the point.
    fn finish(&mut self, mut a: Number) -> Decimal128 {
        let _ = self.0.set_precision(34);
        self.0.plus(&mut a);
        let _ = self.0.set_precision(DIGITS);
        let rounded = Decimal128::parse(&a.to_string()).unwrap_or(Decimal128::NAN);
        match rounded.quantize(0, Rounding::Truncate) {
            whole if Num::Decimal(rounded).same(whole) => whole,
            _ => rounded,
        }
    }

    /// The sum of a series: `next` makes a term of the one before and the term's number.
    fn series(
        &mut self,
        first: Number,
        mut next: impl FnMut(&mut Math, Number, i32) -> Number,
    ) -> Number {
        let (mut sum, mut term) = (first, first);
        for step in 1..200 {
            term = next(self, term, step);
            if term.is_zero() || magnitude(&term) < magnitude(&sum) + SERIES_END {
                break;
            }
            sum = self.add(sum, &term);
        }
        sum
    }

    /// Sine and cosine of an angle below pi/4.
    fn small_sin_cos(&mut self, angle: Number) -> (Number, Number) {
        let square = self.mul(angle, &angle);
        let minus_square = self.neg(square);
        let powers = |math: &mut Math, first: Number, shift: i32| {
            math.series(first, |math, term, step| {
                let divisor = math.int((2 * step + shift) * (2 * step + shift - 1));
                let term = math.mul(term, &minus_square);
                math.div(term, &divisor)
            })
        };
        let sine = powers(self, angle, 1);
        let one = self.int(1);
        (sine, powers(self, one, 0))
    }

    /// Sine and cosine of any angle that is not too large.
    fn sin_cos(&mut self, angle: Number) -> (Number, Number) {
        let pi = self.parse(PI);
        let two = self.int(2);
        let half_pi = self.div(pi, &two);
        let mut turns = self.div(angle, &half_pi);
        self.0.set_rounding(dec::Rounding::HalfEven);
        self.0.round(&mut turns);
        let whole = self.mul(turns, &half_pi);
        let rest = self.sub(angle, &whole);
        let (sine, cosine) = self.small_sin_cos(rest);
        let four = self.int(4);
        let mut quarter = turns;
        self.0.rem(&mut quarter, &four);
        let quarter = quarter.to_string().parse::<i32>().unwrap_or(0).rem_euclid(4);
        match quarter {
            0 => (sine, cosine),
            1 => (cosine, self.neg(sine)),
            2 => (self.neg(sine), self.neg(cosine)),
            _ => (self.neg(cosine), sine),
        }
    }

    fn atan(&mut self, x: Number) -> Number {
        let one = self.int(1);
        // Three halvings make the series short.
        let mut reduced = x;
        for _ in 0..3 {
            let square = self.mul(reduced, &reduced);
            let sum = self.add(square, &one);
            let root = self.sqrt(sum);
            let divisor = self.add(root, &one);
            reduced = self.div(reduced, &divisor);
        }
        let square = self.mul(reduced, &reduced);
        let minus_square = self.neg(square);
        // Terms x^n/n: the power is carried along, divided when it is added.
        let (mut sum, mut power) = (reduced, reduced);
        for step in 1..200 {
            power = self.mul(power, &minus_square);
            let divisor = self.int(2 * step + 1);
            let term = self.div(power, &divisor);
            if term.is_zero() || magnitude(&term) < magnitude(&sum) + SERIES_END {
                break;
            }
            sum = self.add(sum, &term);
        }
        let eight = self.int(8);
        self.mul(sum, &eight)
    }

    fn half_pi(&mut self) -> Number {
        let (pi, two) = (self.parse(PI), self.int(2));
        self.div(pi, &two)
    }

    /// `x` from -1 to 1.
    fn asin(&mut self, x: Number) -> Number {
        let one = self.int(1);
        let square = self.mul(x, &x);
        let rest = self.sub(one, &square);
        if rest.is_zero() {
            let half_pi = self.half_pi();
            return if x.is_negative() { self.neg(half_pi) } else { half_pi };
        }
        let root = self.sqrt(rest);
        let tangent = self.div(x, &root);
        self.atan(tangent)
    }
}

/// The power of ten of the first digit.
fn magnitude(v: &Number) -> i32 {
    v.exponent() + v.digits() as i32
}

/// Digits in front of the point above which an angle is taken as a double.
const ANGLE_MAGNITUDE_MAX: i32 = 40;

fn trigonometric(
    v: Decimal128,
    exact: fn(&mut Math, Number) -> Number,
    rough: fn(f64) -> f64,
) -> Decimal128 {
    if v.is_nan() {
        return v;
    }
    let mut math = Math::new();
    let x = math.of(v);
    if x.is_zero() || magnitude(&x) <= ANGLE_MAGNITUDE_MAX {
        let result = exact(&mut math, x);
        return math.finish(result);
    }
    Decimal128::from_f64(rough(Num::Decimal(v).to_f64()))
}

pub(crate) fn sin(v: Decimal128) -> Decimal128 {
    trigonometric(v, |math, x| math.sin_cos(x).0, f64::sin)
}

pub(crate) fn cos(v: Decimal128) -> Decimal128 {
    trigonometric(v, |math, x| math.sin_cos(x).1, f64::cos)
}

pub(crate) fn tan(v: Decimal128) -> Decimal128 {
    let exact = |math: &mut Math, x| {
        let (sine, cosine) = math.sin_cos(x);
        math.div(sine, &cosine)
    };
    trigonometric(v, exact, f64::tan)
}

/// A function of a number that is not NaN.
fn function(v: Decimal128, exact: impl FnOnce(&mut Math, Number) -> Number) -> Decimal128 {
    if v.is_nan() {
        return v;
    }
    let mut math = Math::new();
    let x = math.of(v);
    let result = exact(&mut math, x);
    math.finish(result)
}

pub(crate) fn asin(v: Decimal128) -> Decimal128 {
    function(v, Math::asin)
}

pub(crate) fn acos(v: Decimal128) -> Decimal128 {
    function(v, |math, x| {
        let (half_pi, sine) = (math.half_pi(), math.asin(x));
        math.sub(half_pi, &sine)
    })
}

pub(crate) fn atan(v: Decimal128) -> Decimal128 {
    function(v, |math, x| {
        if !x.is_infinite() {
            return math.atan(x);
        }
        let half_pi = math.half_pi();
        if x.is_negative() { math.neg(half_pi) } else { half_pi }
    })
}

/// The angle of a point.
pub(crate) fn atan2(y: Decimal128, x: Decimal128) -> Decimal128 {
    if y.is_nan() || x.is_nan() {
        return Decimal128::NAN;
    }
    if y.is_infinite() || x.is_infinite() || (y.is_zero() && x.is_zero()) {
        return Decimal128::from_f64(Num::Decimal(y).to_f64().atan2(Num::Decimal(x).to_f64()));
    }
    let mut math = Math::new();
    let (above, right) = (math.of(y), math.of(x));
    let angle = if right.is_zero() {
        let half_pi = math.half_pi();
        if y.is_negative() { math.neg(half_pi) } else { half_pi }
    } else {
        let slope = math.div(above, &right);
        let angle = math.atan(slope);
        match (x.is_negative(), y.is_negative()) {
            (false, _) => angle,
            (true, below) => {
                let pi = math.parse(PI);
                if below { math.sub(angle, &pi) } else { math.add(angle, &pi) }
            }
        }
    };
    math.finish(angle)
}

/// Below this size of the argument the odd hyperbolic functions are their arguments.
const LINEAR_MAGNITUDE_MAX: i32 = -20;

fn hyperbolic(v: Decimal128, exact: impl FnOnce(&mut Math, Number) -> Number) -> Decimal128 {
    function(v, |math, x| {
        if x.is_zero() || magnitude(&x) < LINEAR_MAGNITUDE_MAX { x } else { exact(math, x) }
    })
}

/// `e^x` and `e^-x`
fn exponentials(math: &mut Math, x: Number) -> (Number, Number) {
    let minus = math.neg(x);
    (math.exp(x), math.exp(minus))
}

pub(crate) fn sinh(v: Decimal128) -> Decimal128 {
    if v.is_infinite() {
        return v;
    }
    hyperbolic(v, |math, x| {
        let (up, down) = exponentials(math, x);
        let (difference, two) = (math.sub(up, &down), math.int(2));
        math.div(difference, &two)
    })
}

pub(crate) fn cosh(v: Decimal128) -> Decimal128 {
    if v.is_infinite() {
        return Decimal128::INFINITY;
    }
    function(v, |math, x| {
        let (up, down) = exponentials(math, x);
        let (sum, two) = (math.add(up, &down), math.int(2));
        math.div(sum, &two)
    })
}

pub(crate) fn tanh(v: Decimal128) -> Decimal128 {
    let size = Num::Decimal(v).to_f64();
    if size.abs() > 100.0 {
        return Decimal128::from(if size > 0.0 { 1 } else { -1 });
    }
    hyperbolic(v, |math, x| {
        let (up, down) = exponentials(math, x);
        let (difference, sum) = (math.sub(up, &down), math.add(up, &down));
        math.div(difference, &sum)
    })
}

pub(crate) fn asinh(v: Decimal128) -> Decimal128 {
    if v.is_infinite() {
        return v;
    }
    // An odd function; for large negative arguments the sum would cancel.
    let result = hyperbolic(v.abs(), |math, x| {
        let (square, one) = (math.mul(x, &x), math.int(1));
        let sum = math.add(square, &one);
        let root = math.sqrt(sum);
        let sum = math.add(root, &x);
        math.ln(sum)
    });
    if v.is_negative() { -result } else { result }
}

/// `v` at least 1.
pub(crate) fn acosh(v: Decimal128) -> Decimal128 {
    if v.is_infinite() {
        return v;
    }
    function(v, |math, x| {
        let (square, one) = (math.mul(x, &x), math.int(1));
        let difference = math.sub(square, &one);
        let root = math.sqrt(difference);
        let sum = math.add(root, &x);
        math.ln(sum)
    })
}

/// `v` between -1 and 1, both excluded.
pub(crate) fn atanh(v: Decimal128) -> Decimal128 {
    hyperbolic(v, |math, x| {
        let (one, two) = (math.int(1), math.int(2));
        let (above, below) = (math.add(one, &x), math.sub(one, &x));
        let ratio = math.div(above, &below);
        let logarithm = math.ln(ratio);
        math.div(logarithm, &two)
    })
}

/// `v` times pi over 180, and the other way round.
pub(crate) fn to_radians(v: Decimal128) -> Decimal128 {
    function(v, |math, x| {
        let (pi, half) = (math.parse(PI), math.int(180));
        let scaled = math.mul(x, &pi);
        math.div(scaled, &half)
    })
}

pub(crate) fn to_degrees(v: Decimal128) -> Decimal128 {
    function(v, |math, x| {
        let (pi, half) = (math.parse(PI), math.int(180));
        let scaled = math.mul(x, &half);
        math.div(scaled, &pi)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: fn(Decimal128) -> Decimal128, cases: &[(&str, &str)]) {
        for (argument, expected) in cases {
            let result = function(Decimal128::parse(argument).unwrap());
            assert_eq!(result.to_string(), *expected, "of {argument}");
        }
    }

    /// Expected figures: 50 digits from another arbitrary-precision library, rounded by hand.
    #[test]
    fn thirty_four_digits() {
        check(
            sin,
            &[
                ("1", "0.8414709848078965066525023216302990"),
                ("0", "0"),
                ("-1", "-0.8414709848078965066525023216302990"),
                ("100", "-0.5063656411097587936565576104597854"),
            ],
        );
        check(cos, &[("1", "0.5403023058681397174009366074429766"), ("0", "1")]);
        check(tan, &[("1", "1.557407724654902230506974807458360")]);
        check(
            asin,
            &[
                ("1", "1.570796326794896619231321691639751"),
                ("0.5", "0.5235987755982988730771072305465838"),
            ],
        );
        check(acos, &[("1", "0"), ("0.5", "1.047197551196597746154214461093168")]);
        check(
            atan,
            &[
                ("1", "0.7853981633974483096156608458198757"),
                ("Infinity", "1.570796326794896619231321691639751"),
            ],
        );
        check(sinh, &[("1", "1.175201193643801456882381850595601")]);
        check(cosh, &[("1", "1.543080634815243778477905620757062"), ("-Infinity", "Infinity")]);
        check(tanh, &[("1", "0.7615941559557648881194582826047936"), ("1000", "1")]);
        check(
            asinh,
            &[
                ("1", "0.8813735870195430252326093249797923"),
                ("-1", "-0.8813735870195430252326093249797923"),
            ],
        );
        check(acosh, &[("1", "0"), ("2", "1.316957896924816708625046347307968")]);
        check(atanh, &[("0.5", "0.5493061443340548456976226184612629")]);
        check(to_radians, &[("180", "3.141592653589793238462643383279503")]);
        check(to_degrees, &[("1", "57.29577951308232087679815481410517")]);
    }

    #[test]
    fn agrees_with_doubles() {
        let functions: [(fn(Decimal128) -> Decimal128, fn(f64) -> f64); 9] = [
            (sin, f64::sin),
            (cos, f64::cos),
            (tan, f64::tan),
            (atan, f64::atan),
            (sinh, f64::sinh),
            (cosh, f64::cosh),
            (tanh, f64::tanh),
            (asinh, f64::asinh),
            (to_radians, f64::to_radians),
        ];
        for (at, (decimal, double)) in functions.into_iter().enumerate() {
            for step in -60..60 {
                let x = f64::from(step) * 0.37;
                let result = Num::Decimal(decimal(Decimal128::from_f64(x))).to_f64();
                let expected = double(x);
                let error = (result - expected).abs() / expected.abs().max(1e-9);
                assert!(error < 1e-9, "function {at} of {x}: {result} for {expected}");
            }
        }
        let point = |y: f64, x: f64| {
            let angle = atan2(Decimal128::from_f64(y), Decimal128::from_f64(x));
            (Num::Decimal(angle).to_f64() - y.atan2(x)).abs() < 1e-12
        };
        for y in [-2.0, 0.0, 3.0] {
            for x in [-1.0, 0.0, 5.0] {
                assert!(point(y, x), "{y} {x}");
            }
        }
        // Too large to reduce: taken as a double.
        assert!(Num::Decimal(sin(Decimal128::parse("1E+100").unwrap())).to_f64().abs() <= 1.0);
    }
}
