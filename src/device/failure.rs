//! What a failed call of Vulkan means for a device. This module asks the driver why a device was lost, where it has `VK_EXT_device_fault`;
//! it does not decide what happens to the device.

use std::ffi::{CStr, c_char};

use ash::vk;
use vulkano::VulkanObject;
use vulkano::device::Device;

use crate::error::Error;

/// The most addresses, and the most of the vendor's reports, that a message has.
const MAX_REPORTS: u32 = 8;

/// The error of a call of Vulkan, as [`Error::vulkan`] makes it, with the driver's report where the device was lost.
pub fn failure(device: &Device, what: &str, result: vk::Result) -> Error {
    match (Error::vulkan(what, result), result) {
        (Error::DeviceLost(text), vk::Result::ERROR_DEVICE_LOST) => {
            let report = report(device).map(|report| format!("; the driver reports: {report}")).unwrap_or_default();
            Error::DeviceLost(text + &report)
        }
        (error, _) => error,
    }
}

/// The driver's report on a device that was lost.
fn report(device: &Device) -> Option<String> {
    let get = device.fns().ext_device_fault.get_device_fault_info_ext;
    device.enabled_features().device_fault.then_some(())?;
    read(|counts, info| {
        let info = info.map_or(std::ptr::null_mut(), |info| info);
        // SAFETY: the device has the feature and was lost; counts and info are valid, and info's arrays are as long as the counts say.
        unsafe { get(device.handle(), counts, info) }
    })
}

/// Reads a report by a function that gives the counts, and then the report.
fn read(
    mut get: impl FnMut(&mut vk::DeviceFaultCountsEXT, Option<&mut vk::DeviceFaultInfoEXT>) -> vk::Result,
) -> Option<String> {
    let mut counts = vk::DeviceFaultCountsEXT::default();
    get(&mut counts, None).result().ok()?;
    counts.address_info_count = counts.address_info_count.min(MAX_REPORTS);
    counts.vendor_info_count = counts.vendor_info_count.min(MAX_REPORTS);
    // The vendor's dump is for its own tools.
    counts.vendor_binary_size = 0;
    let mut addresses = vec![vk::DeviceFaultAddressInfoEXT::default(); counts.address_info_count as usize];
    let mut vendor = vec![vk::DeviceFaultVendorInfoEXT::default(); counts.vendor_info_count as usize];
    let mut info = vk::DeviceFaultInfoEXT {
        p_address_infos: addresses.as_mut_ptr(),
        p_vendor_infos: vendor.as_mut_ptr(),
        ..Default::default()
    };
    match get(&mut counts, Some(&mut info)) {
        vk::Result::SUCCESS | vk::Result::INCOMPLETE => {}
        _ => return None,
    }
    addresses.truncate(counts.address_info_count as usize);
    vendor.truncate(counts.vendor_info_count as usize);
    let vendor = vendor.iter().map(|info| {
        format!("{} (code {:#x}, {:#x})", text(&info.description), info.vendor_fault_code, info.vendor_fault_data)
    });
    let parts: Vec<_> = std::iter::once(text(&info.description))
        .chain(addresses.iter().map(address))
        .chain(vendor)
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&char| char as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().trim().to_owned()).unwrap_or_default()
}

fn address(info: &vk::DeviceFaultAddressInfoEXT) -> String {
    use vk::DeviceFaultAddressTypeEXT as Kind;
    let what = match info.address_type {
        Kind::READ_INVALID => "a read of",
        Kind::WRITE_INVALID => "a write to",
        Kind::EXECUTE_INVALID => "an instruction at",
        Kind::INSTRUCTION_POINTER_UNKNOWN | Kind::INSTRUCTION_POINTER_INVALID | Kind::INSTRUCTION_POINTER_FAULT => {
            "instructions at"
        }
        _ => return String::new(),
    };
    // The low bits are unknown where the precision is more than a byte.
    let precision = info.address_precision.max(1);
    format!("{what} {:#x} (within {precision} bytes)", info.reported_address & !(precision - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(text: &str) -> [c_char; vk::MAX_DESCRIPTION_SIZE] {
        let mut chars = [0; vk::MAX_DESCRIPTION_SIZE];
        for (char, byte) in chars.iter_mut().zip(text.bytes()) {
            *char = byte as c_char;
        }
        chars
    }

    /// A driver that has these numbers of addresses and vendor's reports, and ends the second call so.
    fn driver(
        addresses: u32,
        vendor: u32,
        end: vk::Result,
    ) -> impl FnMut(&mut vk::DeviceFaultCountsEXT, Option<&mut vk::DeviceFaultInfoEXT>) -> vk::Result {
        move |counts, info| {
            let Some(info) = info else {
                (counts.address_info_count, counts.vendor_info_count) = (addresses, vendor);
                counts.vendor_binary_size = 1000;
                return vk::Result::SUCCESS;
            };
            assert_eq!(counts.vendor_binary_size, 0);
            info.description = chars("MMU fault\n");
            for i in 0..counts.address_info_count as usize {
                let address = vk::DeviceFaultAddressInfoEXT {
                    address_type: vk::DeviceFaultAddressTypeEXT::WRITE_INVALID,
                    reported_address: 0x12345,
                    address_precision: 0x1000,
                };
                // SAFETY: the caller has room for that many.
                unsafe { info.p_address_infos.add(i).write(address) };
            }
            for i in 0..counts.vendor_info_count as usize {
                let report = vk::DeviceFaultVendorInfoEXT {
                    description: chars("SM warp exception"),
                    vendor_fault_code: 0xe0,
                    vendor_fault_data: 3,
                };
                // SAFETY: as above.
                unsafe { info.p_vendor_infos.add(i).write(report) };
            }
            end
        }
    }

    #[test]
    fn a_report_has_the_description_the_addresses_and_the_vendors_reports() {
        assert_eq!(
            read(driver(1, 1, vk::Result::SUCCESS)).as_deref(),
            Some("MMU fault; a write to 0x12000 (within 4096 bytes); SM warp exception (code 0xe0, 0x3)")
        );
        assert_eq!(read(driver(0, 0, vk::Result::SUCCESS)).as_deref(), Some("MMU fault"));
        let long = read(driver(1000, 0, vk::Result::INCOMPLETE)).unwrap();
        assert_eq!(long.matches("a write to").count(), MAX_REPORTS as usize);
    }

    #[test]
    fn a_driver_that_fails_or_has_nothing_to_say_reports_nothing() {
        assert_eq!(read(driver(1, 1, vk::Result::ERROR_OUT_OF_HOST_MEMORY)), None);
        assert_eq!(read(|_, _| vk::Result::ERROR_DEVICE_LOST), None);
        assert_eq!(read(|_, _| vk::Result::SUCCESS), None);
    }
}
