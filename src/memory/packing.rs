//! Conversion between the host's packing of elements and that of buffers. An element takes at least 8 or 32 bits in a buffer; a narrower
//! one uses the low bits. The host packs elements below a byte from the high bits of each byte on.

use crate::error::{Error, Result};

/// Bits of an element on either side.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    host: u32,
    buffer: u32,
}

impl Packing {
    /// `host` bits an element in the host's bytes, `buffer` in a buffer.
    pub fn new(host: u64, buffer: u64) -> Result<Self> {
        match (host, buffer) {
            (2 | 4, 8 | 32) | (8 | 16, 32) => Ok(Self { host: host as u32, buffer: buffer as u32 }),
            _ => Err(Error::Argument("bits: expected widths of which the second can hold the first".into())),
        }
    }

    fn host_bytes(self, count: usize) -> usize {
        match self.host {
            2 | 4 => count.div_ceil(8 / self.host as usize),
            bits => count * (bits / 8) as usize,
        }
    }

    /// The buffer's bytes for a number of elements; `None` where the host's bytes hold fewer.
    pub fn unpacked_bytes(self, host: &[u8], count: usize) -> Option<usize> {
        (count.checked_mul(4).is_some() && self.host_bytes(count) <= host.len()).then(|| self.width() * count)
    }

    /// The host's bytes for a buffer's bytes.
    pub fn packed_bytes(self, buffer: &[u8]) -> usize {
        self.host_bytes(buffer.len() / self.width())
    }

    fn width(self) -> usize {
        (self.buffer / 8) as usize
    }

    /// Fills `buffer`, of whole elements, from the host's bytes.
    pub fn unpack(self, host: &[u8], buffer: &mut [u8]) {
        match (self.host, self.buffer) {
            (2, 8) => unpack::<2, 1>(host, buffer),
            (4, 8) => unpack::<4, 1>(host, buffer),
            (2, _) => unpack::<2, 4>(host, buffer),
            (4, _) => unpack::<4, 4>(host, buffer),
            (8, _) => copy::<1, 4>(host, buffer),
            _ => copy::<2, 4>(host, buffer),
        }
    }

    /// Fills `host` from a buffer's bytes; what is left of the last byte is zero.
    pub fn pack(self, buffer: &[u8], host: &mut [u8]) {
        match (self.host, self.buffer) {
            (2, 8) => pack::<2, 1>(buffer, host),
            (4, 8) => pack::<4, 1>(buffer, host),
            (2, _) => pack::<2, 4>(buffer, host),
            (4, _) => pack::<4, 4>(buffer, host),
            (8, _) => copy::<4, 1>(buffer, host),
            _ => copy::<4, 2>(buffer, host),
        }
    }
}

fn unpack<const BITS: usize, const WIDTH: usize>(host: &[u8], buffer: &mut [u8]) {
    for (byte, elements) in host.iter().zip(buffer.chunks_mut(8 / BITS * WIDTH)) {
        for (k, element) in elements.chunks_exact_mut(WIDTH).enumerate() {
            element.fill(0);
            element[0] = byte >> (8 - BITS * (k + 1)) & ((1 << BITS) - 1);
        }
    }
}

fn pack<const BITS: usize, const WIDTH: usize>(buffer: &[u8], host: &mut [u8]) {
    for (byte, elements) in host.iter_mut().zip(buffer.chunks(8 / BITS * WIDTH)) {
        *byte = elements
            .chunks_exact(WIDTH)
            .enumerate()
            .fold(0, |byte, (k, element)| byte | (element[0] & ((1 << BITS) - 1)) << (8 - BITS * (k + 1)));
    }
}

/// Little-endian integers of one width from those of another.
fn copy<const FROM: usize, const TO: usize>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.chunks_exact(FROM).zip(to.chunks_exact_mut(TO)) {
        to.fill(0);
        let both = FROM.min(TO);
        to[..both].copy_from_slice(&from[..both]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_undoes_unpacking_for_any_number_of_elements() {
        for (host, buffer) in [(2, 8), (4, 8), (2, 32), (4, 32), (8, 32), (16, 32)] {
            let packing = Packing::new(host, buffer).unwrap();
            for count in 0..40 {
                let bytes = packing.host_bytes(count);
                let mut packed: Vec<u8> = (0..bytes).map(|i| (i * 37 + 11) as u8).collect();
                let unused = bytes * 8 - count * host as usize;
                if let Some(last) = packed.last_mut() {
                    *last = *last >> unused << unused;
                }
                let mut unpacked = vec![0xff; packing.unpacked_bytes(&packed, count).unwrap()];
                packing.unpack(&packed, &mut unpacked);
                let mut again = vec![0xff; packing.packed_bytes(&unpacked)];
                packing.pack(&unpacked, &mut again);
                assert_eq!(again, packed, "{count} elements of {host} bits in {buffer}");
            }
            assert_eq!(packing.unpacked_bytes(&[0; 3], 100), None);
        }
        assert!(Packing::new(8, 8).is_err());
    }

    #[test]
    fn the_first_element_has_the_high_bits() {
        let mut buffer = [0; 4];
        Packing::new(2, 8).unwrap().unpack(&[0b11_00_01_10], &mut buffer);
        assert_eq!(buffer, [3, 0, 1, 2]);
    }
}
