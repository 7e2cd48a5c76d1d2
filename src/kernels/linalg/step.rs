//! The kernels of linear algebra: their types, parameters and texts.

use super::*;

/// How matrices are computed with: the values that define `shaders/lib/linalg/scalar.glsl`.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    /// The type of the copy that is worked on.
    pub work: Type,
    /// Whether indices need 64 bits.
    pub wide: bool,
    /// Whether sums are formed in double and everything else is rounded once.
    pub fine: bool,
    pub lanes: u32,
    pub segments: u32,
}

impl Scheme {
    /// As the type itself has it, by workgroups of so many threads.
    pub(super) fn plain(work: Type, wide: bool, threads: u32) -> Self {
        Self { work, wide, fine: false, lanes: threads, segments: 1 }
    }

    pub(super) fn threads(&self) -> u64 {
        (self.lanes * self.segments).into()
    }

    pub(super) fn is_double(&self) -> bool {
        matches!(self.work, Type::F64 | Type::C128)
    }

    /// The type of real numbers that go with the elements.
    pub(super) fn real(&self) -> Type {
        if self.is_double() { Type::F64 } else { Type::F32 }
    }

    pub(super) fn scalars(&self) -> String {
        let complex = self.work.is_complex();
        let sum = if self.fine || self.is_double() { "double" } else { "float" };
        let real = self.real().compute().glsl();
        let element = |real: &str| match (complex, real) {
            (false, real) => real.to_owned(),
            (true, "double") => "dvec2".into(),
            (true, _) => "vec2".into(),
        };
        let eps = if self.is_double() { "2.220446049250313e-16lf" } else { "1.1920928955078125e-7" };
        format!(
            "#define PART {real}\n#define ELEMENT {}\n#define COMPLEX_ELEMENTS {}\n#define SUM {sum}\n\
             #define SUM_ELEMENT {}\n#define ACCUMULATOR SUM_ELEMENT\n#define EXACT {}\n#define EPS {eps}\n\
             #define LANES {}u\n#define SEGMENTS {}u\n",
            element(real),
            u8::from(complex),
            element(sum),
            u8::from(self.fine && !self.is_double()),
            self.lanes,
            self.segments,
        )
    }

    pub(super) fn computes(&self) -> SmallVec<[Compute; 4]> {
        let mut computes = SmallVec::from_slice(&[self.work.compute(), self.real().compute()]);
        if self.fine {
            computes.push(Compute::Double);
        }
        computes
    }
}

/// How kernels run: where, how they compute there, and whether the caller may wait.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub cx: &'a Context<'a>,
    pub scheme: Scheme,
}

impl<'a> Run<'a> {
    /// For the orthogonal decompositions of matrices of so many rows and columns.
    pub(super) fn new(cx: &'a Context<'a>, work: Type, rows: u64, columns: u64) -> Self {
        let fine = cx.caps().float64 && rows.max(columns) <= EXACT;
        // A CPU device runs eight threads as one vector; more would only wait for each other.
        let (lanes, segments) = if cx.caps().cpu { (8, 1) } else { (32, 4) };
        Self { cx, scheme: Scheme { work, wide: false, fine, lanes, segments } }
    }

    /// By workgroups of `segments` times `lanes` threads.
    pub(super) fn by(self, lanes: u32, segments: u32) -> Self {
        Self { scheme: Scheme { lanes, segments, ..self.scheme }, ..self }
    }

    /// For kernels of which a workgroup has a matrix, or a few columns of it.
    pub(super) fn whole(self) -> Self {
        self.by(if self.cx.caps().cpu { 8 } else { 256 }, 1)
    }

    /// A block for so many real numbers.
    pub(super) fn numbers(&self, count: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(count * self.scheme.real().size())
    }

    /// A block for so many elements.
    pub(super) fn elements(&self, count: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(count * self.scheme.work.size())
    }
}

/// What a parameter that is an address points at.
#[derive(Clone, Copy)]
pub(super) enum Holds {
    Cells,
    Numbers,
    Indices,
    Tensor(Type),
}

/// A parameter's name, what it points at, and the block that is meant.
pub(super) type Operand<'a> = (&'static str, Holds, &'a Allocation);

impl Holds {
    pub(super) fn of<'a>(self, name: &'static str, block: &'a Allocation) -> Operand<'a> {
        (name, self, block)
    }
}

/// A kernel of files under `shaders/lib/linalg`, of which the first holds its arithmetic, and one run of it.
pub(super) struct Step<'a> {
    pub files: &'a [&'a str],
    pub run: Run<'a>,
    /// Whether threads of a workgroup read from buffers what others of it wrote.
    pub coherent: bool,
    pub defines: &'a [(&'a str, u32)],
    /// The tensor that the kernel reads as `LOAD(i)` or writes as `STORE(i, x)`.
    pub tensor: Option<Type>,
    pub reads: &'a [Operand<'a>],
    pub writes: &'a [Operand<'a>],
    /// Strides among them wrap, so that negative ones work out.
    pub extents: &'a [(&'static str, u64)],
    pub groups: u64,
}

impl<'a> Step<'a> {
    /// One workgroup, without parameters.
    pub(super) fn new(files: &'a [&'a str], run: Run<'a>) -> Self {
        let (reads, writes, extents) = (&[], &[], &[]);
        Self { files, run, coherent: false, defines: &[], tensor: None, reads, writes, extents, groups: 1 }
    }

    /// A thread for each of `count` elements, which have nothing in common.
    pub(super) fn each(files: &'a [&'a str], run: Run<'a>, count: u64) -> Self {
        let run = run.by(if run.cx.caps().cpu { 64 } else { 256 }, 1);
        Self { groups: count.div_ceil(run.scheme.threads()), ..Self::new(files, run) }
    }

    pub(super) fn record(&self) -> Attempt<()> {
        let Run { cx, scheme } = self.run;
        let reads: SmallVec<[&Allocation; 8]> = self.reads.iter().map(|&(_, _, block)| block).collect();
        let writes: SmallVec<[&Allocation; 8]> = self.writes.iter().map(|&(_, _, block)| block).collect();
        check_indices(cx.caps(), scheme.wide)?;
        let kernel = Kernel {
            key: &self.key(),
            params: &|params| self.params(params),
            source: &|parameters| self.source(parameters),
            groups: self.groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(cx)
    }

    pub(super) fn params(&self, params: &mut Params) {
        for &(name, holds, block) in self.reads.iter().chain(self.writes) {
            let storage = match holds {
                Holds::Cells => "Cell",
                Holds::Numbers => "Number",
                Holds::Indices => "uint",
                Holds::Tensor(ty) => ty.storage(),
            };
            params.legacy(block, 0, storage, name);
        }
        params.extents(self.run.scheme.wide, self.extents.iter().copied().chain([("groups", self.groups)]));
    }

    pub(super) fn key(&self) -> Vec<u8> {
        let Scheme { work, wide, fine, lanes, segments } = self.run.scheme;
        let mut bytes = b"linalg ".to_vec();
        for file in self.files {
            bytes.extend_from_slice(file.as_bytes());
            bytes.push(0xff);
        }
        bytes.extend_from_slice(&[work as u8, wide.into(), fine.into(), self.coherent.into()]);
        bytes.extend([lanes, segments].iter().flat_map(|count| count.to_le_bytes()));
        bytes.extend(self.tensor.map(|ty| ty as u8));
        bytes.push(0xff);
        bytes.extend(self.defines.iter().flat_map(|(_, value)| value.to_le_bytes()));
        bytes
    }

    pub(super) fn source(&self, parameters: &str) -> String {
        let Run { cx, scheme, .. } = self.run;
        let mut storages = vec!["uint"];
        storages.extend(self.tensor.map(Type::storage));
        let mut computes = scheme.computes();
        computes.extend(self.tensor.map(Type::compute));
        let coherent = if self.coherent { "coherent " } else { "" };
        let compute = scheme.work.compute();
        let declarations = format!(
            "{scalars}\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Cell {{ ELEMENT v[]; }};\n\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Number {{ PART v[]; }};\n\
             #define SIZE_Cell {element}ul\n#define SIZE_Number {part}ul\n\
             #define ELEMENTS(b, i) AT(Cell, b, i)\n\
             #define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define VECTOR {vector}\n\
             #define LOCAL_SIZE {threads}u\n\
             #define PROCESSOR {processor}\n\
             #define SUBGROUP {subgroup}\n\
             {parameters}",
            scalars = scheme.scalars(),
            element = scheme.work.size(),
            part = scheme.real().size(),
            multiply_add = multiply_add(cx.caps(), compute),
            vector = vector(compute).1,
            threads = scheme.threads(),
            processor = u8::from(processor(cx)),
            subgroup = cx.caps().subgroup,
        );
        let mut text = head(cx.caps(), scheme.wide, &storages, &computes, &declarations);
        text.push_str("#include \"lib/complex.glsl\"\n");
        for (name, value) in self.defines {
            let _ = writeln!(text, "#define {name} {value}");
        }
        if let Some(ty) = self.tensor {
            let _ = write!(
                text,
                "#define LOAD(i) {}\n#define STORE(i, x) {}\n",
                convert(element(ty, "tensor", "(i)"), scheme.work),
                assign(ty, "tensor", "(i)", ("(x)".into(), scheme.work)),
            );
        }
        text.push_str("layout(local_size_x = LOCAL_SIZE) in;\n");
        for file in self.files {
            let _ = writeln!(text, "#include \"lib/linalg/{file}.glsl\"");
        }
        text
    }
}
