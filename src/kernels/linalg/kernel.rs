//! The kernels of linear algebra: what their sources depend on, and what a launch gives them. Their texts are files of
//! `shaders/lib/linalg`, which this module puts together without knowing what they compute.

use super::*;
use crate::tuning::linalg::{accumulates_f64, column_threads, element_threads, matrix_threads};

/// How matrices are computed with: the types that `shaders/lib/linalg/scalar.glsl` and `exact.glsl` take.
#[derive(Clone, Copy, Hash)]
pub(super) struct Arithmetic {
    /// The type of the copy that is worked on.
    pub work: Type,
    /// Whether indices have 64 bits.
    pub index64: bool,
    /// Whether sums are formed in double and everything else is rounded once.
    pub accumulate_f64: bool,
}

impl Arithmetic {
    /// All in the type itself.
    pub(super) fn plain(work: Type, index64: bool) -> Self {
        Self { work, index64, accumulate_f64: false }
    }

    pub(super) fn is_double(&self) -> bool {
        matches!(self.work, Type::F64 | Type::C128)
    }

    /// The type of real numbers that go with the elements.
    pub(super) fn real(&self) -> Type {
        if self.is_double() { Type::F64 } else { Type::F32 }
    }

    fn definitions(&self) -> String {
        let complex = self.work.is_complex();
        let sum = if self.accumulate_f64 || self.is_double() { "double" } else { "float" };
        let real = self.real().compute().glsl();
        let element = |real: &str| match (complex, real) {
            (false, real) => real.to_owned(),
            (true, "double") => "dvec2".into(),
            (true, _) => "vec2".into(),
        };
        let eps = if self.is_double() { "2.220446049250313e-16lf" } else { "1.1920928955078125e-7" };
        // 2^-485 and 2^-51.
        let shortest = if sum == "double" { "1.0010414759154216e-146lf" } else { "4.440892098500626e-16" };
        format!(
            "#define SCALAR {real}\n#define ELEMENT {}\n#define COMPLEX_ELEMENTS {}\n#define SUM {sum}\n\
             #define SUM_ELEMENT {}\n#define ACCUMULATOR SUM_ELEMENT\n#define EXACT_DIVISION {}\n#define EPS {eps}\n\
             #define SHORTEST {shortest}\n",
            element(real),
            u8::from(complex),
            element(sum),
            u8::from(self.accumulate_f64 && !self.is_double()),
        )
    }

    fn computes(&self) -> SmallVec<[Compute; 4]> {
        let mut computes = SmallVec::from_slice(&[self.work.compute(), self.real().compute()]);
        if self.accumulate_f64 {
            computes.push(Compute::Double);
        }
        computes
    }
}

/// The threads of a workgroup.
#[derive(Clone, Copy, Hash)]
pub(super) struct WorkgroupShape {
    /// Threads that work on one column together.
    pub column_threads: u32,
    /// Columns that a workgroup works on at once.
    pub columns: u32,
}

impl WorkgroupShape {
    /// `threads` invocations whose work is not divided by columns.
    pub(super) fn flat(threads: u32) -> Self {
        Self { column_threads: threads, columns: 1 }
    }

    pub(super) fn threads(&self) -> u64 {
        (self.column_threads * self.columns).into()
    }
}

/// What the kernels of one decomposition share: where they run, what they compute with, and their usual workgroup.
#[derive(Clone, Copy)]
pub(super) struct Workspace<'a> {
    pub cx: &'a Context<'a>,
    pub arithmetic: Arithmetic,
    pub workgroup: WorkgroupShape,
}

impl Workspace<'_> {
    /// For the orthogonal decompositions of matrices of so many rows and columns.
    pub(super) fn new<'a>(cx: &'a Context<'a>, work: Type, rows: u64, columns: u64) -> Workspace<'a> {
        let accumulate_f64 = accumulates_f64(cx.caps(), rows, columns);
        let arithmetic = Arithmetic { work, index64: false, accumulate_f64 };
        let [column_threads, columns] = column_threads(cx.caps());
        Workspace { cx, arithmetic, workgroup: WorkgroupShape { column_threads, columns } }
    }

    /// A kernel of these files by the usual workgroups.
    pub(super) fn kernel<'k>(&self, files: &'k [&'static str]) -> MatrixKernel<'k> {
        MatrixKernel::new(files, self.arithmetic, self.workgroup)
    }

    /// A kernel whose workgroups have a matrix each, or a few of its columns.
    pub(super) fn whole<'k>(&self, files: &'k [&'static str]) -> MatrixKernel<'k> {
        MatrixKernel::new(files, self.arithmetic, WorkgroupShape::flat(matrix_threads(self.cx.caps())))
    }

    /// A kernel with a thread for each element.
    pub(super) fn each<'k>(&self, files: &'k [&'static str]) -> MatrixKernel<'k> {
        MatrixKernel::new(files, self.arithmetic, WorkgroupShape::flat(element_threads(self.cx.caps())))
    }

    /// Memory for so many real numbers.
    pub(super) fn reals(&self, count: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(count * self.arithmetic.real().size())
    }

    /// Memory for so many elements.
    pub(super) fn elements(&self, count: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(count * self.arithmetic.work.size())
    }
}

/// What a buffer holds.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// Elements of the type that is worked in.
    Elements,
    /// The real numbers that go with the elements.
    Reals,
    /// 32-bit indices.
    Indices,
    /// A tensor of any type.
    Tensor(Type),
}

#[derive(Clone, Copy)]
enum Access {
    Read,
    Update,
    Write,
}

/// A buffer that a kernel gets, with the name that it has there.
#[derive(Clone, Copy)]
pub(super) struct MatrixOperand<'a> {
    name: &'static str,
    content: Content,
    access: Access,
    allocation: &'a Allocation,
}

impl Content {
    pub(super) fn read<'a>(self, name: &'static str, allocation: &'a Allocation) -> MatrixOperand<'a> {
        MatrixOperand { name, content: self, access: Access::Read, allocation }
    }

    /// The kernel reads what was there before, and writes.
    pub(super) fn update<'a>(self, name: &'static str, allocation: &'a Allocation) -> MatrixOperand<'a> {
        MatrixOperand { name, content: self, access: Access::Update, allocation }
    }

    /// The kernel reads nothing but what it wrote itself.
    pub(super) fn write<'a>(self, name: &'static str, allocation: &'a Allocation) -> MatrixOperand<'a> {
        MatrixOperand { name, content: self, access: Access::Write, allocation }
    }

    fn storage(self) -> &'static str {
        match self {
            Content::Elements => "Element",
            Content::Reals => "Real",
            Content::Indices => "uint",
            Content::Tensor(ty) => ty.storage(),
        }
    }
}

/// An extent, offset or stride with its name. Strides wrap, so that negative ones work out.
pub(super) type Extent = (&'static str, u64);

/// A kernel of files under `shaders/lib/linalg`. The first file holds the arithmetic.
#[derive(Hash)]
pub(super) struct MatrixKernel<'k> {
    pub files: &'k [&'static str],
    pub arithmetic: Arithmetic,
    pub workgroup: WorkgroupShape,
    /// Whether threads of a workgroup read from buffers what others of it wrote.
    pub coherent: bool,
    pub defines: &'k [(&'static str, u32)],
    /// The type of the tensor that the kernel reads as `LOAD(i)` or writes as `STORE(i, x)`.
    pub tensor: Option<Type>,
}

/// What one launch gives.
pub(super) struct MatrixArgs<'a> {
    operands: &'a [MatrixOperand<'a>],
    extents: &'a [Extent],
    groups: u64,
}

impl<'k> MatrixKernel<'k> {
    /// A kernel without definitions of its own.
    pub(super) fn new(files: &'k [&'static str], arithmetic: Arithmetic, workgroup: WorkgroupShape) -> Self {
        Self { files, arithmetic, workgroup, coherent: false, defines: &[], tensor: None }
    }

    pub(super) fn launch(
        &self,
        cx: &Context,
        operands: &[MatrixOperand],
        extents: &[Extent],
        groups: u64,
    ) -> Attempt<()> {
        launch(cx, self, &MatrixArgs { operands, extents, groups })
    }

    /// With a thread for each of `count` elements, which have nothing in common.
    pub(super) fn launch_each(
        &self,
        cx: &Context,
        operands: &[MatrixOperand],
        count: u64,
        extents: &[Extent],
    ) -> Attempt<()> {
        let mut all: SmallVec<[Extent; 8]> = SmallVec::from_slice(&[("count", count)]);
        all.extend_from_slice(extents);
        self.launch(cx, operands, &all, count.div_ceil(self.workgroup.threads()))
    }

    /// The definitions that all files share, before the parameters, which use them.
    fn definitions(&self, caps: &Capabilities) -> String {
        let Self { arithmetic, workgroup, .. } = self;
        let compute = arithmetic.work.compute();
        let coherent = if self.coherent { "coherent " } else { "" };
        format!(
            "{types}\
             #define COLUMN_THREADS {column_threads}u\n#define GROUP_COLUMNS {columns}u\n\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Element {{ ELEMENT v[]; }};\n\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Real {{ SCALAR v[]; }};\n\
             #define SIZE_Element {element}ul\n#define SIZE_Real {real}ul\n\
             #define ELEMENTS(b, i) AT(Element, b, i)\n\
             #define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define VECTOR {vector}\n\
             #define LOCAL_SIZE {threads}u\n\
             #define CPU_DEVICE {cpu_device}\n\
             #define SUBGROUP {subgroup}\n",
            types = arithmetic.definitions(),
            column_threads = workgroup.column_threads,
            columns = workgroup.columns,
            element = arithmetic.work.size(),
            real = arithmetic.real().size(),
            multiply_add = multiply_add(caps, compute),
            vector = shared_vector(compute),
            threads = workgroup.threads(),
            cpu_device = u8::from(cpu_vectors(caps)),
            subgroup = caps.subgroup,
        )
    }
}

impl KernelSpec for MatrixKernel<'_> {
    type Args<'a> = MatrixArgs<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let mut storages = vec!["uint"];
        storages.extend(self.tensor.map(Type::storage));
        let mut computes = self.arithmetic.computes();
        computes.extend(self.tensor.map(Type::compute));
        let declarations = self.definitions(caps) + parameters;
        let mut text = head(caps, self.arithmetic.index64, &storages, &computes, &declarations);
        text.push_str("#include \"lib/complex.glsl\"\n");
        for (name, value) in self.defines {
            let _ = writeln!(text, "#define {name} {value}");
        }
        if let Some(ty) = self.tensor {
            let _ = write!(
                text,
                "#define LOAD(i) {}\n#define STORE(i, x) {}\n",
                convert(element(ty, "tensor", "(i)"), self.arithmetic.work),
                assign(ty, "tensor", "(i)", ("(x)".into(), self.arithmetic.work)),
            );
        }
        text.push_str("layout(local_size_x = LOCAL_SIZE) in;\n");
        for file in self.files {
            let _ = writeln!(text, "#include \"lib/linalg/{file}.glsl\"");
        }
        text
    }

    fn params<'a>(&self, args: &MatrixArgs<'a>, params: &mut Params<'a>) {
        for &MatrixOperand { name, content, access, allocation } in args.operands {
            let storage = content.storage();
            match access {
                Access::Read => params.read(allocation, storage, name),
                Access::Update => params.update(allocation, storage, name),
                Access::Write => params.write(allocation, storage, name),
            }
        }
        let extents = args.extents.iter().copied().chain([("groups", args.groups)]);
        params.extents(self.arithmetic.index64, extents);
    }

    fn groups(&self, args: &MatrixArgs) -> u64 {
        args.groups
    }
}
