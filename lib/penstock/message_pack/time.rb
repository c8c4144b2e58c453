# frozen_string_literal: true

module Penstock
  module MessagePack
    # For Ruby's Time as MessagePack's timestamp, to the nanosecond. The zone is not kept: what is unpacked is local time.
    #
    #     factory.register_type(Penstock::MessagePack::Timestamp::TYPE, Time,
    #                           packer: Penstock::MessagePack::Time::Packer,
    #                           unpacker: Penstock::MessagePack::Time::Unpacker)
    module Time
      # Takes a Time, gives a payload. Shareable.
      Packer = Ractor.make_shareable(proc { |time| Timestamp.to_msgpack_ext(time.to_i, time.nsec) })
      # Takes a payload, gives a Time. Shareable.
      Unpacker = Ractor.make_shareable(proc do |payload|
        sec, nsec = Timestamp.parts(payload)
        ::Time.at(sec, nsec, :nanosecond)
      end)
      # Takes a payload, gives a {Timestamp}. Shareable.
      TimestampUnpacker = Ractor.make_shareable(proc { |payload| Timestamp.from_msgpack_ext(payload) })
    end
  end
end
