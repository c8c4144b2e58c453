# frozen_string_literal: true

# Compares how three readers decode the same documents: Penstock's MessagePack, the gem "msgpack" and Python's msgpack. It also
# feeds Penstock each document in two pieces, split at every possible place.
#
#   ruby -Ilib test/message_pack/support/differential.rb [DOCUMENTS [SEED]]
#
# Half of the documents are valid; the others are damaged or made of random bytes. Every 500th has a size at which Penstock
# changes how it reads. Some are read while every allocation collects garbage (GC.stress). The outcome of a document is the
# canonical text of its value or the kind of error: !incomplete, !malformed, !extra, !deep. It ends with status 3 without the gem
# or without Python's msgpack; the environment's MESSAGE_PACK_READERS=gem does without Python. The last line is the figure.

require "open3"
require "penstock/message_pack"
require_relative "random"

begin
  require "msgpack"
rescue LoadError => e
  warn "the gem msgpack is not installed: #{e.message}"
  exit 3
end

# Documents short enough to be split everywhere, and now and then one of a size at which the codec changes its behaviour.
class MessagePackDocuments < MessagePackRandom
  BOUNDARIES = [15, 16, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2049].freeze
  LONG = [255, 256, 1023, 1024, 1025, 4096, 65_535, 65_536].freeze

  # @param number [Integer] the document's number
  # @return [String]
  def document(number)
    return large if (number % 500).zero?

    case number % 8
    when 0..3 then pack(object(3))
    when 4, 5 then damaged(pack(object(3)))
    when 6 then damaged(damaged(pack(object(2))))
    else bytes(24)
    end
  end

  private

  def pack(value) = Penstock::MessagePack.pack(value)

  def large
    count = BOUNDARIES.sample(random: @random)
    made = case @random.rand(5)
           when 0 then Array.new(count) { |i| "value #{i} is longer than what is embedded" }
           when 1 then (0...count).to_h { |i| [i, "value #{i} is longer than what is embedded"] }
           when 2 then (0...count).to_h { |i| ["key #{i}", object(1)] }
           when 3 then count.times.inject(object(1)) { |inner, i| i < 120 ? [inner] : inner }
           else [text, "x" * LONG.sample(random: @random)]
           end
    @random.rand(4).zero? ? damaged(pack(made)) : pack(made)
  end

  def length
    case @random.rand(200)
    when 0 then @random.rand(250..260)
    when 1..12 then @random.rand(28..36)
    else @random.rand(6)
    end
  end
end

# The canonical text of a value, the same as reader.py prints. All NaNs have one text, because their bits may change
# on the way.
module MessagePackText
  # A payload that the specification does not allow for a timestamp. Python raises an error for it.
  class InvalidTimestamp < StandardError
  end

  ATOMS = { nil => "n", true => "t", false => "f" }.freeze

  module_function

  def of(value)
    case value
    when nil, true, false then ATOMS.fetch(value)
    when Integer then "i#{value}"
    when Float then float(value)
    when String then "#{value.encoding == Encoding::BINARY ? "b" : "s"}#{value.unpack1("H*")}"
    when Array then "[#{value.map { |item| of(item) }.join(",")}]"
    when Hash then "{#{value.map { |key, item| "#{of(key)}:#{of(item)}" }.join(",")}}"
    else extension(value)
    end
  end

  def float(value) = value.nan? ? "nan" : "d#{[value].pack("G").unpack1("H*")}"

  def extension(value)
    return "x#{value.type}:#{value.payload.unpack1("H*")}" unless value.type == -1

    seconds, nanoseconds = timestamp(value.payload)
    raise InvalidTimestamp if nanoseconds > 999_999_999

    "x-1:#{seconds}.#{nanoseconds}"
  end

  def timestamp(payload)
    case payload.bytesize
    when 4 then [payload.unpack1("N"), 0]
    when 8 then payload.unpack1("Q>").then { |bits| [bits & ((1 << 34) - 1), bits >> 34] }
    when 12 then payload.unpack("Nq>").reverse
    else raise InvalidTimestamp
    end
  end
end

# Python's reader, in a separate process.
class MessagePackPython
  PROGRAM = File.expand_path("reader.py", __dir__)

  # @return [String, nil] a Python that has msgpack
  def self.command
    [ENV.fetch("PYTHON", nil), "python3", "/usr/bin/python3"].compact.find do |python|
      system(python, "-c", "import msgpack", out: File::NULL, err: File::NULL)
    end
  end

  # @param documents [Array<String>]
  # @return [Array<String>] the outcome of each document
  def self.outcomes(documents)
    input = documents.map { |document| [document.bytesize].pack("N") << document }.join
    output, status = Open3.capture2(command, PROGRAM, stdin_data: input, binmode: true)
    raise "Python's reader ended with #{status}" unless status.success?

    output.lines(chomp: true)
  end
end

# The comparison.
class MessagePackDifferential
  OURS = Penstock::MessagePack
  BATCH = 20_000
  SHOWN = 10
  SPLIT_EVERYWHERE = 300 # bytes. A longer document is split at this many places
  STRESS_EVERY = 4001 # one document of this many is read under GC.stress,
  STRESSED_SIZE = 2000 # unless it is longer, because each allocation costs a collection
  UNLIMITED = { allow_unknown_ext: true, max_elements: nil, max_bytes: nil }.freeze

  def initialize(documents, seed, python:)
    @documents = documents
    @seed = seed
    @python = python
    @random = MessagePackDocuments.new(seed)
    @findings = @splits = @bytes = @stressed = 0
  end

  def run
    start = now
    (0...@documents).each_slice(BATCH) { |numbers| batch(numbers) }
    puts figure(now - start)
    @findings.zero?
  end

  private

  def batch(numbers)
    documents = numbers.map { |number| @random.document(number) }
    @bytes += documents.sum(&:bytesize)
    pythons = @python ? Thread.new { MessagePackPython.outcomes(documents) } : nil
    ours = documents.each_with_index.map { |document, i| examine(numbers[i], document) }
    pythons&.value&.each_with_index { |theirs, i| beside_python(documents[i], ours[i], theirs) }
  end

  # @return [String] Penstock's outcome
  def examine(number, document)
    ours = outcome { OURS.unpack(document, UNLIMITED) }
    beside_gem(document, ours, outcome { MessagePack.unpack(document, allow_unknown_ext: true) })
    stress(document, ours) if (number % STRESS_EVERY).zero? && document.bytesize <= STRESSED_SIZE
    split(document)
    ours
  end

  def outcome
    MessagePackText.of(yield)
  rescue EOFError
    "!incomplete"
  rescue MessagePackText::InvalidTimestamp
    "!timestamp"
  rescue StandardError, NoMemoryError => e
    category(e)
  end

  def category(error)
    case error.class.name[/\w+\z/]
    when "MalformedFormatError" then error.message.include?("extra") ? "!extra" : "!malformed"
    when "StackError" then "!deep"
    else "!#{error.class} #{error.message}"
    end
  end

  # Penstock detects at a header that the document is too short. The gem reads on, and may find something invalid first, or
  # allocates the size that the header claims.
  def beside_gem(document, ours, theirs)
    return if ours == theirs || (ours == "!incomplete" && theirs.match?(/\A!(malformed|NoMemoryError|ArgumentError array size)/))

    finding("the gem", document, ours, theirs)
  end

  # Python also rejects a header that announces more than the document has. It allows more than 128 levels.
  def beside_python(document, ours, theirs)
    return if ours == theirs || %w[!deep !timestamp].include?(ours) || theirs == "!timestamp"
    return if ours == "!incomplete" && %w[!limit !malformed].include?(theirs)

    finding("Python", document, ours, theirs)
  end

  def stress(document, ours)
    @stressed += 1
    found = outcome do
      GC.stress = true
      OURS.unpack(document, UNLIMITED)
    ensure
      GC.stress = false
    end
    finding("Penstock under GC.stress", document, ours, found) unless found == ours
    pieces = in_pieces(document, document.bytesize / 2, stress: true)
    whole = in_pieces(document, 0)
    finding("Penstock in pieces under GC.stress", document, whole, pieces) unless whole == pieces
  end

  def split(document)
    whole = in_pieces(document, 0)
    places(document.bytesize).each do |place|
      @splits += 1
      found = in_pieces(document, place)
      finding("Penstock split at #{place}", document, whole, found) unless found == whole
    end
  end

  def places(size)
    size <= SPLIT_EVERYWHERE ? (1...size) : Array.new(SPLIT_EVERYWHERE / 10) { |i| (i * 7919 % size) + 1 }
  end

  # @return [Array(String, Class)] the values, packed again, and the final error
  def in_pieces(document, place, stress: false)
    unpacker = OURS::Unpacker.new(UNLIMITED)
    objects = []
    GC.stress = stress
    begin
      unpacker.feed_each(document.byteslice(0, place)) { |object| objects << object } if place.positive?
      unpacker.feed_each(document.byteslice(place..)) { |object| objects << object }
    rescue Penstock::Error => e
      error = e.class
    end
    GC.stress = false
    [OURS.pack(objects), error]
  ensure
    GC.stress = false
  end

  def finding(other, document, ours, theirs)
    @findings += 1
    return if @findings > SHOWN

    puts "#{document.unpack1("H*")[0, 400]}: Penstock #{ours.inspect[0, 300]}, #{other} #{theirs.inspect[0, 300]}"
  end

  def figure(seconds)
    readers = "gem #{MessagePack::VERSION}#{", Python's #{python_version}" if @python}"
    "message_pack differential: #{@documents} documents (#{@bytes / 1000} kB) beside #{readers}, #{@splits} splits, " \
      "#{@stressed} under GC.stress, #{@findings} findings; seed #{@seed}, #{seconds.round} s, Ruby #{RUBY_VERSION}"
  end

  def python_version = `#{MessagePackPython.command} -c "import msgpack; print(*msgpack.version, sep='.')"`.chomp

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  python = ENV["MESSAGE_PACK_READERS"] != "gem"
  if python && !MessagePackPython.command
    warn "no python3 here has msgpack: install Debian's python3-msgpack"
    exit 3
  end
  documents, seed = ARGV
  exit MessagePackDifferential.new(Integer(documents || 20_000), Integer(seed || Random.new_seed % (2**32)), python:).run
end
