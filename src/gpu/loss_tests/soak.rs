//! What losses leave behind, and faults for as long as one likes.

use super::*;

/// Pieces of memory that hold code and are no file's: drivers that compile for the CPU have one for each kernel.
fn pieces_of_code() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_code = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.len() == 5 && fields[1].contains('x')
    };
    maps.lines().filter(is_code).count()
}

/// A process of Linux may have 65,530 pieces of memory.
#[test]
fn a_lost_device_gives_back_the_code_of_its_kernels() {
    in_own_process("soak::a_lost_device_gives_back_the_code_of_its_kernels", || {
        const KERNELS: usize = 64;
        let gpu = gpu_at(Some(1)).unwrap();
        let before = pieces_of_code();
        let buffer = gpu.upload(bytemuck::cast_slice(&[0_u32; 64]), Blocking::Allowed).unwrap();
        (0..KERNELS).for_each(|key| count_by(gpu, 1000 + key as u64, &buffer).unwrap());
        assert_eq!(words(gpu, &buffer).unwrap(), [KERNELS as u32; 64]);
        let built = pieces_of_code();
        // SwiftShader's code lies in few pieces.
        assert!(!gpu.caps.name.contains("llvmpipe") || built >= before + KERNELS * 3 / 4, "{before} {built}");

        lose(gpu);
        assert_eq!(work(gpu_at(Some(1)).unwrap()).unwrap(), [7; 64]);
        let given_back = (0..3_000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            pieces_of_code() < before + KERNELS / 2
        });
        assert!(given_back, "{before} before, {built} with kernels, {} now", pieces_of_code());
    });
}

/// The time between two faults of the soak.
const FAULT_EVERY: Duration = Duration::from_secs(5);

/// Seconds are given by `NX_VULKAN_SOAK_SECONDS`.
#[test]
#[ignore = "it takes as long as it is told to"]
fn a_soak_with_faults_loses_nothing() {
    in_own_process("soak::a_soak_with_faults_loses_nothing", || {
        let faults = [
            ("vkQueueSubmit", Vk::ERROR_DEVICE_LOST),
            ("vkWaitSemaphores", Vk::ERROR_DEVICE_LOST),
            ("vkAllocateMemory", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
            ("vkEndCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ("vkGetSemaphoreCounterValue", Vk::ERROR_DEVICE_LOST),
            ("vkCreateComputePipelines", Vk::ERROR_OUT_OF_HOST_MEMORY),
        ];
        // Pipelines that a device lacks come up all the time, and one that is not lost has no more of them in the end.
        const KEYS: u64 = 512;
        let (ended, next_key) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let round = move |index, seed: u32| {
            let gpu = gpu_at(Some(index))?;
            let buffer = gpu.upload(bytemuck::cast_slice(&[seed; 64]), Blocking::Allowed)?;
            (0..20).try_for_each(|_| count(gpu, &buffer))?;
            if seed.is_multiple_of(16) {
                count_by(gpu, 1000 + next_key.fetch_add(1, Relaxed) % KEYS, &buffer)?;
            }
            let expected = seed + 20 + u32::from(seed.is_multiple_of(16));
            assert_eq!(words(gpu, &buffer)?, [expected; 64]);
            Ok::<_, Unfinished>(())
        };
        let rounds = |index, may_fail: bool| {
            let mut done = [0, 0];
            for seed in 1.. {
                match round(index, seed) {
                    Ok(()) => done[0] += 1,
                    Err(Unfinished::Failed(Error::DeviceLost(_) | Error::OutOfMemory(_))) if may_fail => done[1] += 1,
                    Err(error) => panic!("device {index}: {error:?}"),
                }
                if ended.load(Relaxed) {
                    break;
                }
            }
            done
        };
        let (on_faulty, on_other, injected) = thread::scope(|scope| {
            let on_faulty: Vec<_> = (0..2).map(|_| scope.spawn(|| rounds(1, true))).collect();
            let on_other = scope.spawn(|| rounds(0, false));
            let start = Instant::now();
            let mut injected = 0;
            while start.elapsed() < soak_time() {
                let (call, result) = faults[injected % faults.len()];
                inject(gpu_at(Some(1)).unwrap(), call, injected % 3, result);
                injected += 1;
                thread::sleep(FAULT_EVERY);
            }
            ended.store(true, Relaxed);
            (
                on_faulty.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>(),
                on_other.join().unwrap(),
                injected,
            )
        });
        assert_eq!(work(gpu_at(Some(1)).unwrap()).unwrap(), [7; 64]);
        let retired = (0..3_000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            opened().iter().filter(|gpu| gpu.stream.is_lost()).all(|gpu| gpu.pool.info().pool == 0)
        });
        assert!(retired, "memory of lost devices is held");
        println!(
            "{injected} faults, {} devices lost, rounds on the faulty device and those that failed: {on_faulty:?}, on the other one: {on_other:?}",
            losses()
        );
    });
}
