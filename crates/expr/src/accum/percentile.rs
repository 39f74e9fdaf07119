//! `$percentile` and `$median`: exact, from all numbers.
//!
//! MongoDB's `approximate` is a digest. The exact discrete percentile is one of its possible results, and its
//! result for few values.

use super::saved::damaged;
use kauri_base::{Error, Result, bail, sort, work};
use kauri_bson::{Doc, DocWriter, Value};

/// The percentile method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// One of the values.
    Discrete,
    /// Interpolated between two of them.
    Continuous,
}

impl Method {
    pub fn parse(value: &Value<'_>) -> Result<Method> {
        match value.as_str() {
            Some("approximate" | "discrete") => Ok(Method::Discrete),
            Some("continuous") => Ok(Method::Continuous),
            _ => bail!(
                BadValue,
                "Currently only 'approximate', 'discrete' and 'continuous' can be used as percentile 'method'."
            ),
        }
    }
}

/// Checks `p`: numbers from 0 to 1.
pub(crate) fn parse_p(value: &Value<'_>) -> Result<Vec<f64>> {
    let bad = |code, text: String| Error::location(code, text);
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return Err(bad(
            7750301,
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
                crate::numeric::value_text(value)
            ),
        ));
    };
    let number = |item: Value<'_>| {
        let Some(p) = item.as_f64_lossy() else {
            return Err(bad(
                7750302,
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
                    crate::numeric::value_text(&item)
                ),
            ));
        };
        if !(0.0..=1.0).contains(&p) {
            return Err(bad(
                7750303,
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {p}"
                ),
            ));
        }
        Ok(p)
    };
    items.iter().map(|elem| number(elem.value())).collect()
}

/// The numbers seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    values: Vec<f64>,
}

impl Numbers {
    /// Values that are not numbers, and NaN, are ignored.
    pub fn add(&mut self, value: &Value<'_>) {
        if let Some(number) = value.as_f64_lossy()
            && !number.is_nan()
        {
            self.values.push(number);
        }
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) {
        let bytes: Vec<u8> = self.values.iter().flat_map(|number| number.to_le_bytes()).collect();
        out.put_value("numbers", &Value::Binary { subtype: 0, bytes: bytes.into() });
    }

    pub fn restore(doc: Doc<'_>) -> Result<Numbers> {
        let Value::Binary { bytes, .. } = doc.value("numbers") else { return Err(damaged()) };
        let numbers = bytes.chunks_exact(8).filter_map(|number| number.try_into().ok());
        Ok(Numbers { values: numbers.map(f64::from_le_bytes).collect() })
    }

    pub fn merge(&mut self, mut other: Numbers) {
        self.values.append(&mut other.values);
    }

    pub fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<f64>()
    }

    fn sorted(&self) -> Result<Vec<f64>> {
        work::reserve(size_of_val(self.values.as_slice()))?;
        let mut sorted = self.values.clone();
        sort::sort_by(&mut sorted, f64::total_cmp)?;
        Ok(sorted)
    }

    /// One percentile for each of `p`; nulls without numbers.
    pub fn percentiles(&self, p: &[f64], method: Method) -> Result<Value<'static>> {
        let sorted = self.sorted()?;
        work::tick(p.len() as u32)?;
        Ok(Value::array(p.iter().map(|p| percentile(&sorted, *p, method))))
    }

    pub fn median(&self, method: Method) -> Result<Value<'static>> {
        Ok(percentile(&self.sorted()?, 0.5, method))
    }
}

fn percentile(sorted: &[f64], p: f64, method: Method) -> Value<'static> {
    let Some(last) = sorted.len().checked_sub(1) else { return Value::Null };
    let at = |place: usize| sorted.get(place.min(last)).copied().unwrap_or(f64::NAN);
    let value = match method {
        Method::Discrete => at(((p * sorted.len() as f64).ceil() as usize).saturating_sub(1)),
        Method::Continuous => {
            let rank = p * last as f64;
            let (low, high) = (at(rank.floor() as usize), at(rank.ceil() as usize));
            if low == high { low } else { low + (high - low) * rank.fract() }
        }
    };
    Value::Double(value)
}

/// The percentile of the numbers in an array.
pub(crate) fn of_array(items: kauri_bson::Doc<'_>) -> Result<Numbers> {
    let mut numbers = Numbers::default();
    for elem in items.ticked() {
        numbers.add(&elem?.value());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::Decimal128;

    #[test]
    fn percentiles_by_hand() {
        let mut numbers = Numbers::default();
        for v in [10, 40, 20, 30] {
            numbers.add(&v.into());
        }
        numbers.add(&"x".into());
        numbers.add(&f64::NAN.into());
        let p = [0.0, 0.25, 0.26, 0.5, 0.99, 1.0];
        let discrete = numbers.percentiles(&p, Method::Discrete).unwrap();
        assert_eq!(discrete, kauri_bson::array![10.0, 10.0, 20.0, 20.0, 40.0, 40.0]);
        let continuous = numbers.percentiles(&[0.0, 0.5, 1.0], Method::Continuous).unwrap();
        assert_eq!(continuous, kauri_bson::array![10.0, 25.0, 40.0]);
        assert_eq!(Numbers::default().median(Method::Discrete).unwrap(), Value::Null);
        numbers.add(&Value::Decimal128(Decimal128::from(25)));
        assert_eq!(numbers.median(Method::Discrete).unwrap(), Value::Double(25.0));
    }

    #[test]
    fn p_is_checked() {
        use kauri_bson::array;
        let cases = [
            (array![0.5, 1], None),
            (array![], Some(7750301)),
            (Value::Int32(1), Some(7750301)),
            (array!["x"], Some(7750302)),
            (array![1.5], Some(7750303)),
        ];
        for (value, code) in cases {
            let found = parse_p(&value).err().map(|e| e.code().number());
            assert_eq!(found, code, "{value:?}");
        }
    }
}
