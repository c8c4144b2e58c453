# frozen_string_literal: true

module Penstock
  module MessagePack
    # For Ruby's Time as MessagePack's timestamp, to the nanosecond. The zone is lost: unpacking makes local time.
    #
    #     factory.register_type(Penstock::MessagePack::Timestamp::TYPE, Time,
    #                           packer: Penstock::MessagePack::Time::Packer,
    #                           unpacker: Penstock::MessagePack::Time::Unpacker)
    module Time
      # Makes a payload of a Time. Shareable.
      Packer = Ractor.make_shareable(proc { |time| Timestamp.to_msgpack_ext(time.to_i, time.nsec) })
      # Makes a Time of a payload. Shareable.
      Unpacker = Ractor.make_shareable(proc do |payload|
        sec, nsec = Timestamp.parts(payload)
        ::Time.at(sec, nsec, :nanosecond)
      end)
      # Makes a {Timestamp} of a payload. Shareable.
      TimestampUnpacker = Ractor.make_shareable(proc { |payload| Timestamp.from_msgpack_ext(payload) })
    end
  end
end
