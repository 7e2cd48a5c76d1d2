//! Modules drawn at random, whose optimised form has to compute the same bits: arithmetic that repeats, calls with and without effects,
//! branches, loops, and variables of every storage class. A run draws new ones: `NX_VULKAN_SEED` is the seed of
//! the first, `MODULES` their number.
//!
//! LLVM 19 ends the process over few of the originals: "Cannot emit physreg copy instruction", as of seed 246083, whose optimised form it takes. The
//! next commit draws others.

use std::fmt::Write as _;

use crate::optimising::optimised;
use crate::support::{Random, device, run_spirv, seed};
use crate::*;

/// Invocations of the workgroup, each of which has its own elements of the buffers that it writes.
const INVOCATIONS: usize = 8;
/// What each invocation shows of its variables: real numbers and integers.
const SHOWN: usize = 8;
/// Variables of the module, that each invocation has for itself.
const MODULE_VARIABLES: [&str; 2] = ["g0", "g1"];

/// Where statements stand, and what they may do there.
#[derive(Clone)]
struct Scope {
    /// Variables that hold real numbers and integers, and those of them that may be assigned.
    reals: Vec<String>,
    integers: Vec<String>,
    assigned: (Vec<String>, Vec<String>),
    /// Whether `return` may end it: not in `main`, whose invocations meet at barriers.
    returns: bool,
    /// Whether the workgroup's memory is read, by all invocations, and not written.
    reads_shared: bool,
    /// Whether `a` and the variables of the module are written.
    writes: bool,
    /// Loops around.
    loops: usize,
}

/// A function that later ones may call.
struct Function {
    name: String,
    /// Whether its second parameter is `inout`.
    inout: bool,
    reads_shared: bool,
    writes: bool,
}

struct Drawing {
    random: Random,
    functions: Vec<Function>,
    /// Expressions that were used in the function, which may come again.
    reals: Vec<String>,
    integers: Vec<String>,
    /// Calls that may still stand in the function.
    calls: usize,
}

impl Drawing {
    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.random.below(from.len() as u64) as usize]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// A real number, of moderate size.
    fn real(&mut self, scope: &Scope, depth: usize) -> String {
        if depth > 0 && !self.reals.is_empty() && self.chance(40) {
            let reals = self.reals.clone();
            return self.pick(&reals).clone();
        }
        if depth == 0 || self.chance(15) {
            return self.real_leaf(scope);
        }
        let mut x = || self.real(scope, depth - 1);
        let (a, b) = (x(), x());
        let text = match self.random.below(13) {
            0 | 1 => format!("({a} + {b})"),
            2 => format!("({a} - {b})"),
            3 | 4 => format!("({a} * {b})"),
            5 => format!("({a} / (abs({b}) + F(1)))"),
            6 => format!("min({a}, {b})"),
            7 => format!("sqrt(abs({a}))"),
            8 => format!("floor(-{a})"),
            9 => format!("F3({a}, {b}, F(0.5)).zxy[1]"),
            10 => format!("F({})", self.integer(scope, 1)),
            11 => self.call(scope, a),
            _ => format!("({} ? {a} : {b})", self.condition(scope, 1)),
        };
        // What a call reads and writes is not what it was for another statement.
        if text.len() < 200 {
            self.reals.push(text.clone());
        }
        text
    }

    fn real_leaf(&mut self, scope: &Scope) -> String {
        match self.random.below(8) {
            0 => format!("F({})", self.random.unit() * 4.0),
            1 => "a[l]".into(),
            2 => format!("b[{} & 15u]", self.pick(&scope.integers)),
            3 if scope.reads_shared => format!("s[{} & 7u]", self.pick(&scope.integers)),
            _ => self.pick(&scope.reals).clone(),
        }
    }

    fn integer(&mut self, scope: &Scope, depth: usize) -> String {
        if depth > 0 && !self.integers.is_empty() && self.chance(40) {
            let integers = self.integers.clone();
            return self.pick(&integers).clone();
        }
        if depth == 0 || self.chance(20) {
            return match self.random.below(4) {
                0 => format!("{}u", self.random.below(9)),
                1 => "n".into(),
                _ => self.pick(&scope.integers).clone(),
            };
        }
        let (a, b) = (self.integer(scope, depth - 1), self.integer(scope, depth - 1));
        let text = match self.random.below(8) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {b})"),
            3 => format!("({a} ^ {b})"),
            4 => format!("({a} >> ({b} & 31u))"),
            5 => format!("({a} / ({b} | 1u))"),
            6 => format!("uint(clamp({}, F(0), F(99)))", self.real(scope, 1)),
            _ => format!("({} ? {a} : {b})", self.condition(scope, 1)),
        };
        self.integers.push(text.clone());
        text
    }

    fn condition(&mut self, scope: &Scope, depth: usize) -> String {
        match self.random.below(if depth == 0 { 3 } else { 5 }) {
            0 => format!("{} < {}", self.real(scope, 1), self.real(scope, 1)),
            1 => format!("{} >= {}", self.real(scope, 1), self.real(scope, 0)),
            2 => format!("{} < {}", self.integer(scope, 1), self.integer(scope, 1)),
            3 => format!("({}) && ({})", self.condition(scope, 0), self.condition(scope, 0)),
            _ => format!("!({}) || ({})", self.condition(scope, 0), self.condition(scope, 0)),
        }
    }

    /// A call of a function that may do no more than the scope.
    fn call(&mut self, scope: &Scope, argument: String) -> String {
        let fits = |f: &&Function| {
            let assigns = !f.inout || !scope.assigned.0.is_empty();
            assigns && scope.reads_shared >= f.reads_shared && scope.writes >= f.writes
        };
        let fitting: Vec<_> = self.functions.iter().filter(fits).map(|f| (f.name.clone(), f.inout)).collect();
        if fitting.is_empty() || self.calls == 0 {
            return argument;
        }
        self.calls -= 1;
        let (name, inout) = self.pick(&fitting).clone();
        let second = if inout { self.pick(&scope.assigned.0).clone() } else { self.real(scope, 1) };
        format!("{name}({argument}, {second}, {})", self.integer(scope, 1))
    }

    fn statements(&mut self, scope: &Scope, count: u64, depth: usize) -> String {
        (0..count).map(|_| self.statement(scope, depth)).collect()
    }

    fn statement(&mut self, scope: &Scope, depth: usize) -> String {
        let kind = self.random.below(if depth == 0 { 8 } else { 14 });
        match kind {
            0..=3 => self.assignment(scope),
            4 => format!("{} = {};\n", self.pick(&scope.assigned.1).clone(), self.integer(scope, 2)),
            5 => format!("t[{} & 3u] = {};\n", self.integer(scope, 0), self.bounded(scope, 1)),
            6 if scope.writes => format!("a[l] = {};\n", self.bounded(scope, 2)),
            6 | 7 if !scope.returns && !scope.reads_shared => format!("s[l] = {};\n", self.bounded(scope, 2)),
            8..=10 => {
                let (yes, no) = (self.statements(scope, 2, depth - 1), self.statements(scope, 2, depth - 1));
                format!("if ({}) {{\n{yes}}} else {{\n{no}}}\n", self.condition(scope, 1))
            }
            11 => {
                let arms: [String; 3] = std::array::from_fn(|_| self.statements(scope, 1, depth - 1));
                let [first, through, last] = arms;
                let of = self.integer(scope, 1);
                format!("switch ({of} & 3u) {{\ncase 0u:\n{first}break;\ncase 2u:\n{through}default:\n{last}}}\n")
            }
            12 if scope.returns => format!("if ({}) return {};\n", self.condition(scope, 0), self.bounded(scope, 1)),
            13 if scope.loops < 2 => self.counted_loop(scope, depth),
            _ => self.assignment(scope),
        }
    }

    fn assignment(&mut self, scope: &Scope) -> String {
        format!("{} = {};\n", self.pick(&scope.assigned.0).clone(), self.bounded(scope, 2))
    }

    /// A number that stays finite in what is computed of it.
    fn bounded(&mut self, scope: &Scope, depth: usize) -> String {
        format!("clamp({} + t[1], F(-9), F(9))", self.real(scope, depth))
    }

    fn counted_loop(&mut self, scope: &Scope, depth: usize) -> String {
        let (counter, inner) = (format!("i{}", scope.loops), Scope { loops: scope.loops + 1, ..scope.clone() });
        let body = self.statements(&inner, 2, depth - 1);
        let leaving = match self.random.below(3) {
            0 => format!("if ({}) break;\n", self.condition(scope, 0)),
            1 => format!("if ({}) continue;\n", self.condition(scope, 0)),
            _ => String::new(),
        };
        let last = self.statement(&inner, 0);
        format!("for ({counter} = 0u; {counter} < 3u; ++{counter}) {{\n{body}{leaving}{last}}}\n")
    }

    /// Variables of a function, and statements on them.
    fn body(&mut self, scope: &mut Scope, count: u64) -> String {
        let mut text = String::from("precise F t[4] = F[4](F(0), F(0.25), F(0), F(0));\nuint i0 = 0u, i1 = 0u;\n");
        self.reals.clear();
        self.integers.clear();
        for at in 0..3 {
            let _ = writeln!(
                text,
                "precise F x{at} = {};\nuint u{at} = {};",
                self.bounded(scope, 1),
                self.integer(scope, 1)
            );
            scope.reals.push(format!("x{at}"));
            scope.integers.push(format!("u{at}"));
            scope.assigned.0.push(format!("x{at}"));
            scope.assigned.1.push(format!("u{at}"));
        }
        scope.integers.extend(["i0".into(), "i1".into()]);
        text + &self.statements(scope, count, 2)
    }

    fn function(&mut self, at: usize) -> String {
        let function = Function {
            name: format!("f{at}"),
            inout: self.chance(30),
            reads_shared: self.chance(30),
            writes: self.chance(30),
        };
        self.calls = 2;
        let mut scope = Scope {
            reals: ["x", "y"].map(String::from).to_vec(),
            integers: ["k", "l"].map(String::from).to_vec(),
            assigned: (if function.inout { vec!["y".into()] } else { vec![] }, vec![]),
            returns: true,
            reads_shared: function.reads_shared,
            writes: function.writes,
            loops: 1,
        };
        scope.reals.extend(MODULE_VARIABLES.map(String::from));
        if function.writes {
            scope.assigned.0.extend(MODULE_VARIABLES.map(String::from));
        }
        let body = self.body(&mut scope, 3);
        let (how, result) = (if function.inout { "inout precise " } else { "" }, self.bounded(&scope, 2));
        let text = format!("F {}(F x, {how}F y, uint k) {{\n{body}return {result};\n}}\n", function.name);
        self.functions.push(function);
        text
    }

    /// A whole shader. Invocations write to elements of their own, and to the workgroup's memory while none reads it.
    fn shader(&mut self, real: &str, vector: &str) -> String {
        let mut text = format!(
            "layout(local_size_x = {INVOCATIONS}) in;\n#define F {real}\n#define F3 {vector}\n\
             layout(set = 0, binding = 0) buffer A {{ F a[]; }};\nlayout(set = 0, binding = 1) readonly buffer B {{ F b[]; }};\n\
             layout(set = 0, binding = 2) buffer R {{ F shown[]; }};\nlayout(set = 0, binding = 3) buffer U {{ uint counts[]; }};\n\
             layout(push_constant) uniform Push {{ uint n; }};\nshared F s[{INVOCATIONS}];\n\
             F g0 = F(0.5), g1 = F(-1);\nprecise g0;\nprecise g1;\nuint l = gl_LocalInvocationIndex;\n"
        );
        for at in 0..self.random.below(4) as usize {
            text += &self.function(at);
        }
        self.calls = 4;
        let mut scope = Scope {
            reals: MODULE_VARIABLES.map(String::from).to_vec(),
            integers: vec!["l".into()],
            assigned: (MODULE_VARIABLES.map(String::from).to_vec(), vec![]),
            returns: false,
            reads_shared: false,
            writes: true,
            loops: 0,
        };
        text += "void main() {\ns[l] = b[l];\n";
        text += &self.body(&mut scope, 3);
        for reads_shared in [true, false, true] {
            scope.reads_shared = reads_shared;
            // What was read of the workgroup's memory may not be read again where it is written.
            self.reals.clear();
            self.integers.clear();
            text += "barrier();\n";
            text += &self.statements(&scope, 2, 2);
        }
        for (at, real) in ["x0", "x1", "x2", "g0", "g1", "t[0]", "t[2]", "a[l]"].iter().enumerate() {
            let _ = writeln!(text, "shown[l * {SHOWN}u + {at}u] = {real};");
        }
        for at in 0..3 {
            let _ = writeln!(text, "counts[l * {SHOWN}u + {at}u] = u{at};");
        }
        text + "}\n"
    }
}

/// Modules that a run draws.
const MODULES: u64 = 24;

#[test]
fn drawn_modules_compute_the_same_bits_once_optimised() {
    let first = seed();
    let modules = std::env::var("MODULES").ok().and_then(|text| text.parse().ok()).unwrap_or(MODULES);
    let (mut before, mut after) = (0, 0);
    for seed in (0..modules).map(|module| first.wrapping_add(module)) {
        // Seeds that follow each other begin alike.
        let mut drawing = Drawing {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            functions: vec![],
            reals: vec![],
            integers: vec![],
            calls: 0,
        };
        let doubles = device().caps.float64 && drawing.chance(40);
        let (real, vector, words) = if doubles { ("double", "dvec3", 2) } else { ("float", "vec3", 1) };
        let source = drawing.shader(real, vector);
        let numbers: Vec<f64> = (0..16).map(|_| drawing.random.unit() * 4.0).collect();
        let numbers: Vec<u32> = if doubles {
            numbers.iter().flat_map(|x| [x.to_bits() as u32, (x.to_bits() >> 32) as u32]).collect()
        } else {
            numbers.iter().map(|x| (*x as f32).to_bits()).collect()
        };
        let shown = vec![0; INVOCATIONS * SHOWN * words];
        let buffers = [numbers.clone(), numbers, shown, vec![0; INVOCATIONS * SHOWN]];
        let bytes = compile(&source);
        let original = load(&bytes).unwrap_or_else(|error| panic!("NX_VULKAN_SEED={seed}: {error}\n{source}")).words;
        let smaller = optimised(&bytes);
        (before, after) = (before + original.len(), after + smaller.len());
        let run = |words: &[u32]| run_spirv(words, &buffers, &[3], [1; 3]);
        assert_eq!(run(&smaller), run(&original), "NX_VULKAN_SEED={seed} MODULES=1\n{source}");
    }
    println!("{before} words of {modules} modules became {after}");
    // One module may have little that repeats.
    assert!(modules < MODULES || after < before / 4 * 3);
}
