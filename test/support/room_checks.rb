# frozen_string_literal: true

require_relative "room_constants"

# Checks that each file of lib/penstock is in one of its rooms, that rooms load and use only lower rooms, and that users cannot
# reach methods that are not for them. Each check returns its findings as lines. It works on any directory like lib, so that tests
# can give it faulty ones.
class RoomChecks
  # A room may load rooms of a lower level, and itself. A room is a folder of lib/penstock with an entry file of the same name.
  # The listeners' entry file is instrumentation/listeners.rb, which only has autoloads, and belongs to the instrumentation.
  LEVELS = {
    "base" => 0, "errors" => 1, "message_pack" => 2, "config" => 2, "instrumentation" => 3, "native" => 4, "producer" => 5,
    "consumer" => 5, "admin" => 5, "instrumentation/listeners" => 6, "testing" => 7, "app" => 6, "doctor" => 6, "cli" => 7
  }.freeze
  FILES = %w[version.rb].freeze # in no room; every room may load them
  # Constants of higher rooms that files use, and why: the method that names them runs when everything is loaded.
  UPWARDS = {
    "a committed offset is the same value to consumers, admin clients and transactions" => [
      %w[admin/group_offset_requests.rb Offset], %w[admin/partition_lists.rb Offset], %w[producer/exactly_once.rb Offset]
    ],
    "a producer commits a consumer's offsets" => [
      %w[producer/consumed_batch.rb Consumer], %w[producer/consumed_batch.rb ConsumerRegistry],
      %w[producer/exactly_once.rb Consumer], %w[producer/exactly_once.rb ConsumerRegistry], %w[producer/exactly_once.rb Batch],
      %w[producer/transaction_runner.rb ConsumerRegistry]
    ],
    "every signal is handled alike, and a method that traps raises a public error" => [
      %w[base/signal_trap.rb ErrorFactory], %w[base/signal_trap.rb SignalTrapError]
    ],
    "librdkafka knows which settings exist" => [
      %w[config/kafka_checks.rb Native::ProducerClient], %w[config/setting_aliases.rb Native::ProducerClient],
      %w[config/settings.rb Native::ProducerClient], %w[config/setting_table.rb Native::ProducerClient]
    ],
    "threads for listeners wait in C" => [%w[instrumentation/event_dispatcher.rb Native::EventWorker]],
    "Ruby has no weak reference that is safe" => [%w[instrumentation/event_dispatcher.rb Native::WeakList]],
    "operations that apply to every client of the process" => [
      %w[instrumentation/monitor.rb ProducerRegistry], %w[instrumentation/monitor.rb ConsumerRegistry],
      %w[native/close_within.rb ConsumerRegistry], %w[native/close_within.rb ProducerRegistry]
    ],
    "spans describe messages" => [
      %w[instrumentation/open_telemetry.rb Message], %w[instrumentation/open_telemetry.rb Batch],
      %w[instrumentation/open_telemetry.rb DeliveryReport], %w[instrumentation/open_telemetry/processing.rb Batch]
    ],
    "the core makes the payloads of events" => [%w[native/event_source.rb DeliveryReport]],
    "a client of the embedded cluster keeps it alive" => [%w[native/producer_client.rb EmbeddedCluster]],
    "a test may replace a producer's client" => [%w[producer/internals.rb Clients::Dummy]]
  }.freeze
  MARKED = /^ *# *@api private\n(?: *#.*\n)* *(?:def |attr_|define_method).*/
  REQUIRED = /^\s*require(?<relative>_relative)? "(?<path>[^"\#]+)"/

  # @param directory [String] lib
  def initialize(directory)
    @directory = File.expand_path(directory)
    @files = Dir.glob("penstock/**/*.rb", base: @directory).sort
  end

  # @return [Hash{String => Array<String>}] the findings of each check
  def call
    { "Ruby files outside of rooms" => strays, "Ruby files that load upwards" => upward_requires,
      "constants used upwards" => upward_constants,
      "methods marked @api private" => marked_methods }
  end

  def strays
    @files.reject { |file| FILES.include?(inner(file)) || room_of(file) }.map { |file| "#{file} is in no room" }
  end

  def upward_requires
    @files.flat_map do |file|
      own = room_of(file)
      next [] unless own

      loaded_by(file).filter_map do |other|
        room = room_of(other)
        "#{file} loads #{other}" unless room.nil? || room == own || LEVELS[room] < LEVELS[own]
      end
    end
  end

  # A file uses only constants of its own room and of lower ones. If several rooms define a constant, the lowest one counts.
  def upward_constants
    constants = RoomConstants.new(@files.to_h { |file| [file, File.read(File.join(@directory, file))] })
    found = constants.used.flat_map do |file, names|
      upward = names.select { |name| upward?(file, constants.files_of(name)) }
      upward.map { |name| [inner(file), name.delete_prefix("Penstock::")] }
    end
    (found - UPWARDS.values.flatten(1)).map { |file, name| "penstock/#{file} uses #{name}" }.sort
  end

  # A method that is not for users is private, or is in a class that they cannot name. Such a class may be marked.
  def marked_methods
    @files.flat_map do |file|
      File.read(File.join(@directory, file)).scan(MARKED).map { |text| "#{file} marks #{text.lines.last.strip}" }
    end
  end

  private

  def upward?(file, definers)
    own = room_of(file)
    rooms = definers.map { |definer| room_of(definer) }
    own && rooms.none? { |room| room.nil? || room == own || LEVELS[room] < LEVELS[own] }
  end

  def inner(file) = file.delete_prefix("penstock/")

  # @return [String, nil] the innermost room of the file, or the room whose entry file it is
  def room_of(file)
    return "instrumentation" if inner(file) == "instrumentation/listeners.rb"

    LEVELS.keys.select { |room| inner(file).start_with?("#{room}/") || inner(file) == "#{room}.rb" }.max_by(&:size)
  end

  # @return [Array<String>] the files of lib that it loads by require_relative and require
  def loaded_by(file)
    File.read(File.join(@directory, file)).to_enum(:scan, REQUIRED).filter_map do
      match = Regexp.last_match
      base = match[:relative] ? File.dirname(file) : ""
      path = "#{File.expand_path(match[:path], "/#{base}").delete_prefix("/").delete_suffix(".rb")}.rb"
      path if @files.include?(path)
    end
  end
end
